from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8

_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}


def unescape(str text not None):
    if "\\" not in text:
        return text
    parts = []
    rest = iter(text)
    for char in rest:
        if char == "\\":
            after = next(rest, "")
            char = _ESCAPES.get(after, "\\" + after)
        parts.append(char)
    return "".join(parts)


cdef class Scanner:
    def __cinit__(self, names, labels=(), uint32_t capacity=4096):
        self._names = list(names)
        self._name_bytes = [name.encode() for name in self._names]
        self._labels = {label.encode(): label for label in labels}
        self._capacity = capacity
        cdef Py_ssize_t count = len(self._names)
        self._wanted = <promtext_name *>PyMem_Malloc((count + 1) * sizeof(promtext_name))
        self._found = <promtext_sample *>PyMem_Malloc((capacity + 1) * sizeof(promtext_sample))
        if self._wanted is NULL or self._found is NULL:
            raise MemoryError()
        cdef Py_ssize_t i
        for i in range(count):
            self._wanted[i].text = PyBytes_AS_STRING(self._name_bytes[i])
            self._wanted[i].len = <uint32_t>PyBytes_GET_SIZE(self._name_bytes[i])
        if promtext_prepare(&self._table, self._wanted, <uint32_t>count):
            raise ValueError(
                f"wanted series: at most {PROMTEXT_NAMES_MAX} different names "
                f"of 1 to {PROMTEXT_NAME_LEN_MAX} bytes, got {self._names}"
            )

    def __dealloc__(self):
        PyMem_Free(self._wanted)
        PyMem_Free(self._found)

    def scan(self, bytes page not None):
        cdef const char *text = PyBytes_AS_STRING(page)
        cdef size_t size = <size_t>PyBytes_GET_SIZE(page)
        cdef promtext_counts counts
        if promtext_scan(&self._table, text, size, self._found, self._capacity, &counts):
            raise ValueError(f"page of {size} bytes is too long")
        cdef list samples = []
        cdef dict blocks = {}  # a replica's or a GPU's labels stand on each of its lines
        cdef promtext_sample *sample
        cdef uint32_t i
        for i in range(counts.samples):
            sample = &self._found[i]
            block = PyBytes_FromStringAndSize(text + sample.labels_at, sample.labels_len)
            labels = blocks.get(block)
            if labels is None:
                labels = blocks[block] = self._read_labels(text, sample)
            samples.append((self._names[sample.series], sample.value, labels))
        return samples, counts.broken + counts.omitted

    cdef dict _read_labels(self, const char *text, promtext_sample *sample):
        cdef dict labels = {}
        cdef promtext_label label
        cdef uint32_t at = sample.labels_at
        cdef uint32_t end = sample.labels_at + sample.labels_len
        while promtext_next_label(text, end, &at, &label) > 0:
            name = self._labels.get(
                PyBytes_FromStringAndSize(text + label.name_at, label.name_len)
            )
            if name is not None:
                labels[name] = unescape(
                    PyUnicode_DecodeUTF8(text + label.value_at, label.value_len, "replace")
                )
        return labels


def read_number(bytes text not None):
    cdef double value = 0.0
    cdef size_t size = <size_t>PyBytes_GET_SIZE(text)
    if promtext_number(PyBytes_AS_STRING(text), size, &value) != size or size == 0:
        return None
    return value
