"""What random programs are made of: templates of Python, by what they do."""

from __future__ import annotations

import re

EXPRESSIONS = (
    "{0} * 2", "{0} * {1}", "{0} + {1}", "{0} - {1}", "{0} @ {1}", "{0}.sin()", "{0}.exp()", "{0}.tanh()", "{0}.sum()",
    "{0}.sum(0)", "{0}.mean(-1, keepdim=True)", "torch.where({0} > 1, {0}, {1})", "torch.cat([{0}, {1}])",
    "torch.stack([{0}, {1}])", "{0}.softmax(-1)", "{0}.clone()", "{0}.contiguous()", "{0} > 1", "{0}.relu()",
    "torch.nn.functional.dropout({0})", "torch.rand_like({0}) * {0}",
    "torch.nn.functional.layer_norm({0}, {0}.shape[-1:])",
    "torch.ones_like({0}) * {0}", "torch.nn.functional.linear({0}, {1})", "{0} * torch.arange(1, 1 + {0}.shape[-1])",
    "{0} * len(str(list({0}.shape)))", "{0} / len(repr(tuple({0}.shape)))",
    "{0} / math.sqrt({0}.shape[-1])", "{0} * math.log2(1 + {0}.numel())", "{0} - divmod({0}.shape[0], 2)[1]",
    "{0} * {0}.shape[0] ** 0.5", "{0}.repeat(divmod(3, {0}.shape[0]))",
)  # fmt: skip
"""What computes a value."""

VIEWS = (
    "{0}.t()", "{0}.transpose(0, -1)", "{0}.view(-1)", "{0}.reshape(-1)", "{0}.unsqueeze(0)", "{0}.squeeze(0)",
    "{0}[0]", "{0}[..., 1:]", "{0}[1:]", "{0}.expand(2, *{0}.shape)", "{0}.detach()", "{0}.view_as({0})",
    "{0}.unbind()[-1]", "{0}.split(1)[0]", "{0}.chunk(2, -1)[-1]", "{0}.diagonal()", "{0}.movedim(0, -1)",
    "{0}[{0}.shape[0] - 1]", "{0}[..., {0}.shape[-1] - 1]",
)  # fmt: skip
"""What computes nothing."""

MADE = (
    "TwoTensor({0}, {1})", "TwoTensor({0}.detach(), {1}.detach())", "Tagged({0}.detach(), None, 1)", "{0}.{2}",
)  # fmt: skip
"""What makes a wrapper, or looks into one."""

PAIRS = (
    "{0}.chunk(2, -1)", "{0}.unbind()[:2]", "{0}.split(1)[:2]", "{0}.max(-1)", "torch.broadcast_tensors({0}, {1})",
)  # fmt: skip
"""What has two results."""

WRITES = (
    "{0}.mul_(2)", "{0}.add_({1})", "{0}.mul_({1})", "{0}.copy_({1})", "{0}.zero_()", "{0}.sin_()", "{0}[0] = 1.5",
    "{0}[0].mul_(3)", "{0}.t().add_(1)", "{0}[1:].copy_({1}[1:])", "{0}.view(-1)[0] = 0.25", "{0}.fill_(0.5)",
    "torch.sin({1}, out={0})", "{0}.clamp_(0.1, 0.9)", "{0}.t_()", "{0}.unsqueeze_(0)", "{0}.squeeze_()",
)  # fmt: skip
"""What changes a tensor."""

PLACES = (
    "{0}.unfold(0, 2, 1)", "{0}.unfold(-1, 1, 2)", "{0}.unfold(-1, 2, 3)", "{0}.as_strided((2,), (1,))",
    "{0}.as_strided((2, 2), (1, 1), {0}.storage_offset())", "{0}[1:].as_strided((2,), (1,))", "{0}.fill_diagonal_(2)",
    "torch.unsafe_split({0}, 1)[0]", "torch.unsafe_chunk({0}, 2, -1)[-1]", "torch.ops.aten._unsafe_view({0}, (-1,))",
    "torch.as_strided_scatter({0}, {0}.as_strided((2,), (1,)) * 2, (2,), (1,))", "{0} + {0}.storage_offset()",
    "torch.as_strided_copy({0}, (2,), (1,))", "{0}.as_strided((2,), (1,), 1)",
    "{0}.as_strided((1, 2), (1, 1), {0}.storage_offset()) * {1}.sum()",
)  # fmt: skip
"""What depends on where a tensor lies in memory."""

PLACES_WRITTEN = (
    "{0}.unfold(0, 2, 2).mul_(2)", "{0}.unfold(-1, 1, 2).add_(1)", "{0}.unfold(0, 2, 1).fill_(0.5)",
    "{0}.view(-1).unfold(0, 2, 3).mul_(3)", "{0}.view(-1).unfold(0, 3, 2).zero_()",
    "{0}.as_strided((2,), (1,)).mul_(2)", "{0}.as_strided((2,), (2,), 1).sin_()",
    "{0}[1:].as_strided((2,), (1,)).add_(1)", "{0}.as_strided((2,), (2,), {0}.storage_offset() + 1).mul_(3)",
    "{0}.fill_diagonal_(0.5)", "{0}.t().fill_diagonal_(2)", "{0}[1:].fill_diagonal_(3)",
    "torch.unsafe_split({0}, 1)[-1].mul_(3)", "torch.unsafe_chunk({0}, 2, -1)[0].add_({1}.sum())",
    "torch.ops.aten._unsafe_view({0}, (-1,))[:2].mul_(2)", "torch.kron({0}, {1}, out=torch.empty(0).to({0}))",
    "torch.kron({1}.view(-1)[:1], {0}.clone(), out={0})",
    "custom.swap_({0}[0], {0}[1])", "custom.swap_({0}[..., 0], {0}[..., 1])", "custom.swap_(*{0}.chunk(2, -1))",
    "custom.swap_({0}.view(-1)[::2], {0}.view(-1)[1::2])",
    "{0}.as_strided((2,), (1,), {0}.storage_offset()).mul_({1}.sum())",
    "{0}.as_strided((1,), (1,), {0}.storage_offset() + 1).copy_({1}.view(-1)[:1])",
    "{0}[1:].as_strided((1,), (1,), {0}[1:].storage_offset()).add_({1}.mean())",
    "torch.unsafe_split({0}, 1)[-1].as_strided((1,), (1,), {0}.storage_offset() + {0}.stride(0)).mul_({1}.sum())",
)  # fmt: skip
"""What writes places in memory, by views that are no slices."""

LOOKS = (
    "{0} * 2 if {0}.sum() > 2 else {0} - 1", "{0} if {0}.isfinite().all() else {1}",
    "{1}.sin() if ({0} > 1).any() else {0}", "{0} if torch.equal({0}, {1}) else {0} + {1}",
    "{0} * {0}.detach().max().item()", "{0}[{0} > 1]", "{0} * int(({0} > 1).sum())",
    "{0}.masked_select({0} > 1).sum()", "torch.full((2,), {0}.detach().sum().item())",
    "{0}[({0} > 1).sum().item() % 2 :]", "{0} * len([x for x in {0}.flatten().tolist() if x == 1])",
)  # fmt: skip
"""What asks for a value."""

WRITES_THAT_LOOK = (
    "if {0}.sum() > 2: {0}.mul_(0.5)", "if ({0} > 1).any(): {0}.copy_({1})", "if {1}.sum() > 1: {0}.add_(1)",
)  # fmt: skip
"""What changes a tensor, or does not."""

LAYERS = (
    "nn.gelu({0})", "nn.silu({0})", "nn.normalize({0}, dim=-1)", "nn.group_norm({0}, 1)", "nn.glu({0}, 0)",
    "nn.batch_norm({0}, None, None, training=True)", "nn.conv1d({0}[None], {1}[None])", "nn.pad({0}, (1, 1))",
    "nn.scaled_dot_product_attention({0}[None], {1}[None], {1}[None])", "nn.mse_loss({0}, {1}).clone()",
    "nn.hardtanh({0})",
    "nn.cross_entropy({0}, {1}.argmax(-1))", "nn.embedding({1}.argmax(-1), {0})", "nn.max_pool1d({0}[None], 2)",
    "nn.avg_pool1d({0}[None], 2)", "nn.interpolate({0}[None], scale_factor=2)", "nn.rms_norm({0}, {0}.shape[-1:])",
    "nn.alpha_dropout({0}, 0.3, training=True)",
    "nn.bilinear({0}, {0}, {0}[None].expand(2, 3, 3))",
)  # fmt: skip
"""What models are made of. Of a mean, torch leaves memory behind the result, which `as_strided` would read."""

IMAGES = (
    "nn.conv2d({0}, {1}, padding=1)", "nn.conv2d({0}, {0}[:1], padding=1)", "nn.conv2d({0}, {1}[..., :1, :1])",
    "nn.conv2d({0}, {0}[:1].mT.transpose(0, 1), padding=1, groups={0}.shape[1])", "nn.conv_transpose2d({0}, {1})",
    "nn.conv_transpose2d({0}, {0}[:1].transpose(0, 1))", "nn.group_norm({0}, 1)", "nn.instance_norm({0})",
    "nn.batch_norm({0}, None, None, training=True)", "nn.max_pool2d({0}, 2, 1, 1)", "nn.avg_pool2d({0}, 2, 1, 1)",
    "nn.adaptive_avg_pool2d({0}, 1)", "nn.interpolate({0}, scale_factor=2.0, mode='bilinear')",
    "nn.interpolate({0}, scale_factor=2.0)", "nn.pad({0}, (1, 1, 1, 1), mode='replicate')", "nn.silu({0})",
    "nn.channel_shuffle(torch.cat([{0}, {0}], 1), 2)", "nn.glu(torch.cat([{0}, {1}], 1), 1)", "{0} * {1}[:, :1]",
    "{0} + {0}.mean((-2, -1), keepdim=True)", "{0}.roll(1, 2)", "{0}.flip(-1)", "nn.mish({0})",
    "{0}.contiguous(memory_format=torch.channels_last)", "{0}.to(memory_format=torch.channels_last) * 2",
    "{0}.permute(0, 2, 3, 1).contiguous()",
)  # fmt: skip
"""What models of images are made of, whose kernels keep the memory format of what they are given."""

DTYPES = (
    "{0}.float()", "{0}.to(torch.bfloat16)", "{0}.half()", "{0}.long()", "{0}.bool()", "{0}.to(torch.int8)",
    "{0}.double()", "torch.complex({0}, {1})", "{0}.to(torch.complex128)", "{0}.abs()", "{0}.real", "{0}.imag",
    "torch.view_as_real({0})", "torch.fft.fft({0}).abs()", "{0}.conj().resolve_conj()", "{0}.angle()",
    "torch.polar({0}, {1})", "{0}.type_as({1})", "{0} * 1j", "{0}.conj() * {1}", "{0}.sign()", "{0} // 1", "{0}.mT",
    "{0}.mH @ {1}",
)  # fmt: skip
"""What gives another dtype, complex ones too."""

CUSTOM = (
    "custom.scaled({0}, 2.0)", "custom.scaled({0} + {1}, 0.5)", "custom.parts({0})[1]", "custom.parts({0} * {1})[0]",
)  # fmt: skip
"""Operators that torch does not have."""

CUSTOM_WRITES = ("custom.scale_({0}, 2.0)", "custom.swap_({0}, {1})")
"""Such ones that write."""

FUNCTIONS = (
    "own.reverse({0})", "own.itself({0})", "own.turned({0})", "own.both({0})[1]", "own.hooked({0})", "own.between({0})",
    "own.noted({0})",
)  # fmt: skip
"""Views with a gradient of their own."""

CACHED = (
    "{0} * cached.table({0}.shape[-1], {0}.dtype)", "{0} + cached.table({0}.shape[-1], {1}.dtype)",
    "{0} * cached.rotations({0}.shape[-1])['both'][1] - {1}", "{0}.sum() * cached.table({0}.shape[0], {0}.dtype)",
    "torch.where(cached.visible(*{0}.shape), {0}, {0} * 2)", "{0} * cached.rotations({0}.dim() + 2)['both'][0].sum()",
    "{0} @ cached.table({0}.shape[-1], {0}.dtype)",
)  # fmt: skip
"""What reads a table that is kept in a cache of `functools`."""

RESHAPES = re.compile(r"(\.t|squeeze)_\(")
"""What changes the size or the strides of a tensor."""

GIVEN_WHOLE = re.compile(r"broadcast_tensors|\.(real|imag|float|double|half|long|bool|to|type_as|conj|mT|mH)\b")
"""What may give back what it is given, and in inference mode reaches a foreign class before torch has a look."""

PLACED = re.compile(r"unfold|as_strided|storage_offset|fill_diagonal|unsafe|kron|swap_")
"""What depends on where tensors lie in memory."""

LOOKING = re.compile(r"\bif |\.item\(|\bint\(|\.tolist\(|\w\[\w+ > 1\]|masked_select")
"""What asks for a value, whose differing is a reason to compile again."""

UNIFORM = re.compile(r"^\w+(\.(view|unfold)\([^()]*\))*\.(zero_|fill_)\(")
"""What gives all elements one value, and may be done where several of them are one place in memory."""

INNER = ("a", "b", "value", "extra", "codes", "scale", "parts[0]")
"""Attributes of the classes of `trees` under which inner tensors are."""

KINDS = (EXPRESSIONS, EXPRESSIONS, VIEWS, VIEWS, VIEWS, WRITES, WRITES, WRITES, MADE, PAIRS)
"""The kinds of statements, the more often the more they are worth."""

EVERY_KIND = (
    *KINDS, *KINDS, *[PLACES, PLACES_WRITTEN] * 2, *[LOOKS] * 2, WRITES_THAT_LOOK, *[LAYERS] * 2, IMAGES, *[DTYPES] * 2,
    CUSTOM, CUSTOM_WRITES, CACHED, FUNCTIONS,
)  # fmt: skip
"""The same, and what is newer: `make fuzz` draws it."""

WRITTEN = (WRITES, PLACES_WRITTEN, WRITES_THAT_LOOK, CUSTOM_WRITES)
"""Those that are statements of their own, and give nothing."""
