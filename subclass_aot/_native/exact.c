/* Comparing many classes, or many objects, in one call. Plain C on the API of CPython; it knows nothing of torch.
   `twin.py` is the same in Python, and says what the functions promise. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Whether the `count` objects at `values` are instances of exactly `classes`, a tuple; no Python code runs. */
static int
all_exactly(PyObject *const *values, Py_ssize_t count, PyObject *classes)
{
    if (count != PyTuple_GET_SIZE(classes)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if ((PyObject *)Py_TYPE(values[i]) != PyTuple_GET_ITEM(classes, i)) {
            return 0;
        }
    }
    return 1;
}

static PyObject *
exactly(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "exactly(values, classes) takes two arguments, and classes in a tuple");
        return NULL;
    }
    PyObject *values = args[0];
    if ((PyList_CheckExact(values) || PyTuple_CheckExact(values))
        && all_exactly(PySequence_Fast_ITEMS(values), PySequence_Fast_GET_SIZE(values), args[1])) {
        return Py_NewRef(values);
    }
    PyErr_SetString(PyExc_TypeError, "the values are not of exactly these classes");
    return NULL;
}

static PyObject *
are_exactly(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || !PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "are_exactly(classes, *values) takes classes in a tuple");
        return NULL;
    }
    return PyBool_FromLong(all_exactly(args + 1, nargs - 1, args[0]));
}

/* Whether `table` holds exactly the names and values that alternate in `items`, by identity and in this order. */
static int
holds(PyObject *table, PyObject *items)
{
    Py_ssize_t position = 0, i = 0;
    PyObject *name, *value;
    if (!PyDict_Check(table) || !PyTuple_Check(items) || PyDict_GET_SIZE(table) * 2 != PyTuple_GET_SIZE(items)) {
        return 0;
    }
    while (PyDict_Next(table, &position, &name, &value)) {
        if (name != PyTuple_GET_ITEM(items, i) || value != PyTuple_GET_ITEM(items, i + 1)) {
            return 0;
        }
        i += 2;
    }
    return 1;
}

static PyObject *
same_items(PyObject *module, PyObject *kept)
{
    if (!PyTuple_Check(kept) || PyTuple_GET_SIZE(kept) % 2) {
        PyErr_SetString(PyExc_TypeError, "same_items(kept) takes a tuple of holders, each followed by its items");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kept); i += 2) {
        PyObject *holder = PyTuple_GET_ITEM(kept, i);
        PyObject *table = PyDict_Check(holder) ? Py_NewRef(holder) : PyObject_GenericGetDict(holder, NULL);
        if (table == NULL) {
            return NULL;
        }
        int same = holds(table, PyTuple_GET_ITEM(kept, i + 1));
        Py_DECREF(table);
        if (!same) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

static PyMethodDef methods[] = {
    {"exactly", (PyCFunction)(void (*)(void))exactly, METH_FASTCALL, "See `subclass_aot._native.twin.exactly`."},
    {"are_exactly", (PyCFunction)(void (*)(void))are_exactly, METH_FASTCALL,
     "See `subclass_aot._native.twin.are_exactly`."},
    {"same_items", same_items, METH_O, "See `subclass_aot._native.twin.same_items`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_exact",
    .m_doc = "Comparing many classes, or many objects, in one call.",
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__exact(void)
{
    return PyModuleDef_Init(&definition);
}
