/* What both extensions need: checked views of numpy arrays, and f16 as a number. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* f16 -> f32 for every bit pattern: the exponent is moved by a product with 2^112. */
static inline float half(const char *from)
{
    uint16_t h;
    float value;
    memcpy(&h, from, sizeof h);
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    memcpy(&value, &bits, sizeof value);
    value *= 5.192296858534828e33f;
    memcpy(&bits, &value, sizeof value);
    bits |= (h & 0x7fff) >= 0x7c00 ? 0x7f800000u : 0u; /* infinity and NaN */
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void halves(float *to, const char *from, Py_ssize_t count)
{
    for (Py_ssize_t k = 0; k < count; k++)
        to[k] = half(from + 2 * k);
}

/* A view of an array that is `what`: `ndim` axes, one of the types `kinds` (struct's letters),
   contiguous, except that the rows of a matrix that may be int8 may stand apart. With "!" at the
   end of `kinds` it is aligned too, so that its numbers can be read where they lie. */
static int look(PyObject *array, Py_buffer *view, const char *name, const char *what, int ndim,
                const char *kinds, int flags)
{
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_STRIDES | flags) == 0) {
        const char *kind = view->format + (view->format[0] == '=' || view->format[0] == '@');
        const Py_ssize_t size = strchr("bB", *kind)    ? 1
                                : strchr("eH", *kind)  ? 2
                                : strchr("fI", *kind) ? 4
                                                      : 8;
        int fits = view->ndim == ndim && view->itemsize == size;
        fits = fits && *kind && strchr(kinds, *kind) && !kind[1];
        if (fits && view->len && view->shape[ndim - 1] > 1)
            fits = view->strides[ndim - 1] == size;
        if (fits && view->len && ndim == 2 && view->shape[0] > 1 && !strchr(kinds, 'b'))
            fits = view->strides[0] == view->shape[1] * size;
        if (fits && strchr(kinds, '!'))
            fits = (uintptr_t)view->buf % (size_t)size == 0;
        if (fits)
            return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s must be %s", name, what);
    return -1;
}
