"""Layout of fields: how they follow their wrapper when it is viewed, cut into blocks, or shares memory."""
