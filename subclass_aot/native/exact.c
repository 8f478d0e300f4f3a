/* Comparing classes, an attribute, or objects, of many values in one call, and setting attributes. Plain C on the API of CPython, no torch.
   `subclass_aot/base/exact.py` is the same in Python, and says what the functions promise. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

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

/* The same of a list or a tuple. */
static int
is_exactly(PyObject *values, PyObject *classes)
{
    return (PyList_CheckExact(values) || PyTuple_CheckExact(values))
           && all_exactly(PySequence_Fast_ITEMS(values), PySequence_Fast_GET_SIZE(values), classes);
}

static PyObject *
exactly(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "exactly(values, classes) takes two arguments, and classes in a tuple");
        return NULL;
    }
    if (is_exactly(args[0], args[1])) {
        return Py_NewRef(args[0]);
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

/* The same of a set, in the order in which it goes through its elements: that of an unchanged set stays. */
static int
set_holds(PyObject *set, PyObject *items)
{
    PyObject *iterator, *element;
    Py_ssize_t i = 0;
    int same = PySet_GET_SIZE(set) == PyTuple_GET_SIZE(items);
    if (!same || PySet_GET_SIZE(set) == 0) {
        return same;
    }
    iterator = PyObject_GetIter(set);
    while (same && iterator != NULL && (element = PyIter_Next(iterator)) != NULL) {
        same = i < PyTuple_GET_SIZE(items) && element == PyTuple_GET_ITEM(items, i);
        i++;
        Py_DECREF(element);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) { /* another thread changed it */
        PyErr_Clear();
        return 0;
    }
    return same;
}

/* The same of a slot, whose class may have other ways to read it. An empty one holds nothing. */
static int
slot_holds(PyObject *holder, PyObject *name, PyObject *items)
{
    PyObject *value = PyObject_GenericGetAttr(holder, name);
    if (value == NULL) {
        PyErr_Clear();
        return PyTuple_GET_SIZE(items) == 0;
    }
    int same = PyTuple_GET_SIZE(items) == 1 && value == PyTuple_GET_ITEM(items, 0);
    Py_DECREF(value);
    return same;
}

/* The same of a list, of the cell of a closure, and of one name in a dict or one slot of another object, a tuple of
   both; -1 for other holders. */
static int
holds_simply(PyObject *holder, PyObject *items)
{
    if (!PyTuple_Check(items)) {
        return 0;
    }
    if (PyList_Check(holder)) {
        if (PyList_GET_SIZE(holder) != PyTuple_GET_SIZE(items)) {
            return 0;
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++) {
            if (PyList_GET_ITEM(holder, i) != PyTuple_GET_ITEM(items, i)) {
                return 0;
            }
        }
        return 1;
    }
    if (PySet_CheckExact(holder)) {
        return set_holds(holder, items);
    }
    if (PyCell_Check(holder)) {
        return PyTuple_GET_SIZE(items) == 1 && PyCell_GET(holder) == PyTuple_GET_ITEM(items, 0);
    }
    if (PyTuple_CheckExact(holder) && PyTuple_GET_SIZE(holder) == 2) {
        if (!PyDict_Check(PyTuple_GET_ITEM(holder, 0))) {
            return slot_holds(PyTuple_GET_ITEM(holder, 0), PyTuple_GET_ITEM(holder, 1), items);
        }
        PyObject *value = PyDict_GetItem(PyTuple_GET_ITEM(holder, 0), PyTuple_GET_ITEM(holder, 1));
        return PyTuple_GET_SIZE(items) == 1 && value == PyTuple_GET_ITEM(items, 0);
    }
    return -1;
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
        if (!PyDict_Check(holder)) {
            int simple = holds_simply(holder, PyTuple_GET_ITEM(kept, i + 1));
            if (simple == 0) {
                Py_RETURN_FALSE;
            }
            if (simple == 1) {
                continue;
            }
        }
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

#ifdef __GNUC__
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif
#define AHEAD 8 /* Values between the one whose memory is fetched and the one that is read. */
#define LINE 64

/* Reading an attribute may run Python code, and that may change a list: so its size is looked at again each time.

   Among 10,000 tensors, reading is mostly waiting for memory. Where the word behind the header of a Python object points
   to, a tensor has its C++ object, so that is asked for some values ahead. It is a hint, which a word that is no pointer
   does not harm; nothing is read through it. */
static PyObject *
have_exactly(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4 || !PyTuple_Check(args[1]) || !PyUnicode_Check(args[2]) || !PyTuple_Check(args[3])
        || PyTuple_GET_SIZE(args[1]) != PyTuple_GET_SIZE(args[3])) {
        PyErr_SetString(PyExc_TypeError, "have_exactly(values, classes, name, attributes) takes two tuples of one length");
        return NULL;
    }
    PyObject *values = args[0], *name = args[2], *attributes = args[3];
    Py_ssize_t count = PyTuple_GET_SIZE(attributes);
    if (!is_exactly(values, args[1])) {
        Py_RETURN_FALSE;
    }
    for (Py_ssize_t i = 0; i < count && PySequence_Fast_GET_SIZE(values) == count; i++) {
        PyObject *later = PySequence_Fast_GET_ITEM(values, Py_MIN(i + AHEAD, count - 1));
        const char *object;
        if (Py_TYPE(later)->tp_basicsize >= (Py_ssize_t)(sizeof(PyObject) + sizeof(object))) {
            memcpy(&object, later + 1, sizeof(object));
            FETCH(object), FETCH(object + LINE), FETCH(object + 2 * LINE);
        }
        if (PyTuple_GET_ITEM(attributes, i) == Py_None) {
            continue;
        }
        PyObject *value = Py_NewRef(PySequence_Fast_GET_ITEM(values, i));
        PyObject *found = PyObject_GetAttr(value, name);
        Py_DECREF(value);
        if (found == NULL) {
            return NULL;
        }
        Py_DECREF(found); /* only its address is needed any more */
        if (found != PyTuple_GET_ITEM(attributes, i)) {
            Py_RETURN_FALSE;
        }
    }
    return PyBool_FromLong(PySequence_Fast_GET_SIZE(values) == count);
}

static PyObject *
hold(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2 || !PyTuple_Check(args[1]) || nargs - 2 != PyTuple_GET_SIZE(args[1])) {
        PyErr_SetString(PyExc_TypeError, "hold(holder, names, *values) takes as many values as names in a tuple");
        return NULL;
    }
    for (Py_ssize_t i = 2; i < nargs; i++) {
        if (PyObject_GenericSetAttr(args[0], PyTuple_GET_ITEM(args[1], i - 2), args[i]) < 0) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"exactly", (PyCFunction)(void (*)(void))exactly, METH_FASTCALL, "See `subclass_aot.base.exact.exactly`."},
    {"are_exactly", (PyCFunction)(void (*)(void))are_exactly, METH_FASTCALL,
     "See `subclass_aot.base.exact.are_exactly`."},
    {"same_items", same_items, METH_O, "See `subclass_aot.base.exact.same_items`."},
    {"have_exactly", (PyCFunction)(void (*)(void))have_exactly, METH_FASTCALL,
     "See `subclass_aot.base.exact.have_exactly`."},
    {"hold", (PyCFunction)(void (*)(void))hold, METH_FASTCALL, "See `subclass_aot.base.exact.hold`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_exact",
    .m_doc = "Comparing classes, an attribute, or objects, of many values in one call.",
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__exact(void)
{
    return PyModuleDef_Init(&definition);
}
