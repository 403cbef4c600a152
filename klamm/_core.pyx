# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled parts of the client: what it does for each record. `klamm/core.py` says when they are used.

Each class does what its counterpart in pure Python does, which is the reference:

    Lock                 threading.RLock
    OpenBatch            the list of records of klamm.producer.batch.Batch, and klamm.records.encoder
    BatchFields ...      the attributes of Batch, PartitionQueue and TopicQueues
    DefaultPartitioner   klamm.partitioner.DefaultPartitioner
    RecordFuture         klamm.producer.future.RecordFuture
    SendPath             klamm.producer.producer.Producer.send
    ConsumerRecord       klamm.consumer.record.ConsumerRecord
    decode_rows          klamm.consumer.fetch.row_decoder.decode_rows
    ColumnRows           klamm.arrow.row_builder.PureRowBuilder
    pack_rows            klamm.arrow.record_packing.pack
    place_by_key         klamm.arrow.key_partitions.key_partitions
    RecordLoop           klamm.consumer.sync_consumer.Consumer._next

The interpreter lock is held in all of them but the last three, which work on columns. A signal handler or a destructor
may run only where this module calls Python, or makes an object that the garbage collector tracks. So appending a record
does neither.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy
cimport cython

import asyncio as _asyncio
import types as _types
from asyncio import _get_running_loop as _running_loop
from collections.abc import Coroutine as _Coroutine

cdef extern from "Python.h":
    ctypedef void* PyThread_type_lock
    ctypedef int PyLockStatus
    int PY_LOCK_FAILURE, PY_LOCK_ACQUIRED, PY_LOCK_INTR
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock)
    PyLockStatus PyThread_acquire_lock_timed(PyThread_type_lock, long long, int) nogil
    void PyThread_release_lock(PyThread_type_lock) nogil
    unsigned long PyThread_get_thread_ident() nogil
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    void PyObject_GC_UnTrack(PyObject*)
    int PyBytes_CheckExact(object)
    int PyUnicode_CheckExact(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)

cdef extern from *:
    """
    #ifdef _WIN32
    #include <windows.h>
    static int64_t klamm_now_ms(void) {
        FILETIME now;
        GetSystemTimeAsFileTime(&now);
        return (int64_t)((((uint64_t)now.dwHighDateTime << 32 | now.dwLowDateTime) - 116444736000000000ULL) / 10000);
    }
    #else
    #include <time.h>
    static int64_t klamm_now_ms(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    #endif
    """
    int64_t klamm_now_ms() noexcept nogil

cdef int64_t INT64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t INT32_MAX = 0x7FFFFFFF

RECORD_OVERHEAD_BYTES = 36
"""The maximum size of a record's fixed fields (klamm.records.encoder)."""
cdef enum:
    OVERHEAD = 36
    HEADER_OVERHEAD = 10
    UTF8_BYTES_MAX = 4
    BATCH_HEADER = 61
    CRC_AT = 17


# --- the lock

cdef class Lock:
    """A reentrant lock that the core takes in a few nanoseconds. It has the methods of threading.RLock."""

    cdef PyThread_type_lock _lock
    cdef unsigned long _owner
    cdef Py_ssize_t _count

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    cdef inline bint is_mine(self) noexcept:
        return self._count > 0 and self._owner == PyThread_get_thread_ident()

    cdef int take(self, long long timeout_us=-1) except -1:
        """Returns 1, or 0 if the time is over. A signal handler may run, and raise, while it waits."""
        cdef PyLockStatus status
        if self.is_mine():
            self._count += 1
            return 1
        status = PyThread_acquire_lock_timed(self._lock, 0, 0)
        while status != PY_LOCK_ACQUIRED and timeout_us != 0:
            with nogil:
                status = PyThread_acquire_lock_timed(self._lock, timeout_us, 1)
            if status == PY_LOCK_INTR:
                PyErr_CheckSignals()
            elif status == PY_LOCK_FAILURE:
                break
        if status != PY_LOCK_ACQUIRED:
            return 0
        self._owner = PyThread_get_thread_ident()
        self._count = 1
        return 1

    cdef inline void drop(self) noexcept:
        self._count -= 1
        if self._count == 0:
            self._owner = 0
            PyThread_release_lock(self._lock)

    def acquire(self, blocking=True, timeout=-1):
        if not blocking:
            return bool(self.take(0))
        return bool(self.take(-1 if timeout < 0 else <long long>(timeout * 1e6)))

    def release(self):
        if not self.is_mine():
            raise RuntimeError("cannot release un-acquired lock")
        self.drop()

    def __enter__(self):
        return bool(self.take())

    def __exit__(self, *_):
        self.release()

    # For threading.Condition.

    def _is_owned(self):
        return bool(self.is_mine())

    def _release_save(self):
        if not self.is_mine():
            raise RuntimeError("cannot release un-acquired lock")
        count = self._count
        self._count = 1
        self.drop()
        return count

    def _acquire_restore(self, count):
        self.take()
        self._count = count


# --- numbers of the record format

cdef inline uint8_t* put_varint(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw > 0x7F:
        at[0] = <uint8_t>(raw & 0x7F) | 0x80
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 1
    while raw > 0x7F:
        size += 1
        raw >>= 7
    return size


cdef inline const uint8_t* get_varint(const uint8_t* at, const uint8_t* end, int bits, int64_t* value) noexcept nogil:
    """Returns the position after the number, or NULL if it is broken or has more than `bits` (32 or 64) bits."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    if at < end and at[0] < 0x80:
        raw = at[0]
        value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
        return at + 1
    while at < end and shift < (35 if bits == 32 else 70):
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return NULL
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if bits == 32 and raw >> 32:
                return NULL
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return at
        shift += 7
    return NULL


# --- the fields of a record

cdef struct Fields:
    int64_t timestamp_delta, offset_delta, key_size, value_size
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end


cdef inline int read_record(const uint8_t* at, const uint8_t* end, Fields* fields) noexcept nogil:
    """Finds the fields of a record. Returns 0 if it is broken. `read_headers` checks the headers."""
    cdef int64_t size
    at = get_varint(at, end, 32, &size)
    if at == NULL or size < 1 or size > end - at:
        return 0
    end = at + size
    fields.end = end
    at += 1  # The attributes are unused.
    at = get_varint(at, end, 64, &fields.timestamp_delta)
    if at == NULL:
        return 0
    at = get_varint(at, end, 32, &fields.offset_delta)
    if at == NULL:
        return 0
    at = get_varint(at, end, 32, &fields.key_size)
    if at == NULL or fields.key_size < -1 or fields.key_size > end - at:
        return 0
    fields.key = at
    if fields.key_size > 0:
        at += fields.key_size
    at = get_varint(at, end, 32, &fields.value_size)
    if at == NULL or fields.value_size < -1 or fields.value_size > end - at:
        return 0
    fields.value = at
    if fields.value_size > 0:
        at += fields.value_size
    fields.headers = at
    return at < end and (at[0] or at + 1 == end)


cdef inline bint has_headers(Fields* fields) noexcept nogil:
    return fields.headers[0] != 0


cdef object bytes_of(const uint8_t* at, int64_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>at, size)


cdef object read_headers(Fields* fields):
    """Returns the headers as pairs, or None if they are broken."""
    cdef int64_t count, size
    cdef const uint8_t* at = get_varint(fields.headers, fields.end, 32, &count)
    cdef list headers
    if at == NULL or count < 0 or count > fields.end - at:
        return None
    headers = []
    for _ in range(count):
        at = get_varint(at, fields.end, 32, &size)
        if at == NULL or size < 0 or size > fields.end - at:
            return None
        name = PyUnicode_DecodeUTF8(<const char*>at, size, "replace")
        at = get_varint(at + size, fields.end, 32, &size)
        if at == NULL or size < -1 or size > fields.end - at:
            return None
        headers.append((name, bytes_of(at, size)))
        if size > 0:
            at += size
    return tuple(headers) if at == fields.end else None


cdef bint check_headers(Fields* fields) noexcept nogil:
    """Returns whether the headers can be read."""
    cdef int64_t count, size
    cdef const uint8_t* at
    if fields.headers[0] == 0:
        return True
    at = get_varint(fields.headers, fields.end, 32, &count)
    if at == NULL or count < 0 or count > fields.end - at:
        return False
    while count > 0:
        at = get_varint(at, fields.end, 32, &size)
        if at == NULL or size < 0 or size > fields.end - at:
            return False
        at = get_varint(at + size, fields.end, 32, &size)
        if at == NULL or size < -1 or size > fields.end - at:
            return False
        if size > 0:
            at += size
        count -= 1
    return at == fields.end


# --- the open batch

@cython.final
cdef class OpenBatch:
    """The records of one batch in the wire format, behind room for the batch's header.

    It takes records until `close`. It is a sequence of records (`RawRecord`) too, which it decodes when it is asked for
    the first one."""

    cdef uint8_t* _data
    cdef Py_ssize_t _size, _capacity
    cdef int _exports
    cdef bint _is_closed
    cdef int32_t _count
    cdef readonly int64_t base_timestamp_ms, max_timestamp_ms
    cdef list _records
    cdef int64_t* _sizes

    def __cinit__(self):
        self._capacity = 4096
        self._size = BATCH_HEADER
        self._data = <uint8_t*>malloc(self._capacity)
        if self._data == NULL:
            raise MemoryError
        self.max_timestamp_ms = -1

    def __dealloc__(self):
        free(self._data)
        free(self._sizes)

    cdef int reserve(self, Py_ssize_t size) except -1:
        cdef uint8_t* data
        if size > self._capacity:
            data = <uint8_t*>realloc(self._data, max(size, 2 * self._capacity))
            if data == NULL:
                raise MemoryError
            self._data = data
            self._capacity = max(size, 2 * self._capacity)
        return 0

    cdef int64_t add(self, int64_t timestamp_ms, object key, object value, tuple headers, Py_ssize_t size_max) except -2:
        """Appends a record, and returns its index. Returns -1 if the batch is closed. `size_max` is an upper bound of
        the record's size."""
        cdef Py_ssize_t key_size = -1 if key is None else PyBytes_GET_SIZE(key)
        cdef Py_ssize_t value_size = -1 if value is None else PyBytes_GET_SIZE(value)
        cdef Py_ssize_t headers_size = 1
        cdef int64_t delta, body
        cdef uint8_t* at
        if self._is_closed or self._exports:
            return -1
        if self._count == INT32_MAX:
            raise OverflowError("a batch has at most 2,147,483,647 records")
        self.reserve(self._size + size_max)
        if headers is not None:
            headers_size = sizes_of_headers(headers)
        if self._count == 0:
            self.base_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        delta = timestamp_ms - self.base_timestamp_ms
        body = (
            1 + varint_size(delta) + varint_size(self._count) + varint_size(key_size) + varint_size(value_size)
            + headers_size + max(key_size, 0) + max(value_size, 0)
        )
        at = put_varint(self._data + self._size, body)
        at[0] = 0
        at = put_varint(at + 1, delta)
        at = put_varint(at, self._count)
        at = put_varint(at, key_size)
        if key_size > 0:
            memcpy(at, PyBytes_AS_STRING(key), key_size)
            at += key_size
        at = put_varint(at, value_size)
        if value_size > 0:
            memcpy(at, PyBytes_AS_STRING(value), value_size)
            at += value_size
        if headers is None:
            at[0] = 0
            at += 1
        else:
            at = put_headers(at, headers)
        self._size = at - self._data
        self._count += 1
        return self._count - 1

    def append(self, record):
        """Appends a record, a RawRecord with bytes and int64 timestamps. Returns its index, or -1 if the batch is
        closed."""
        timestamp_ms, key, value, headers = record
        headers = tuple(headers) if headers else None
        return self.add(timestamp_ms, <bytes?>key if key is not None else None,
                        <bytes?>value if value is not None else None, headers, size_bound(key, value, headers))

    def close(self):
        """Ends the appending of records."""
        self._is_closed = True

    @property
    def data(self):
        """The encoded records, as a memoryview. The batch is closed."""
        return memoryview(self)[BATCH_HEADER:]

    def seal(self, header not None):
        """Writes the header of the batch before the records. Returns both as a memoryview."""
        cdef const uint8_t[::1] view = header
        assert view.shape[0] == BATCH_HEADER and self._is_closed
        memcpy(self._data, &view[0], BATCH_HEADER)
        return memoryview(self)

    def sizes(self, Py_ssize_t index):
        """Returns the timestamp of a record in ms, and the sizes of its key and value. -1 stands for a null."""
        cdef int64_t* of_record
        if not 0 <= index < self._count:
            raise IndexError(index)
        self.keep_sizes()
        of_record = self._sizes + 2 * index
        return self.base_timestamp_ms + of_record[0], <int32_t>(of_record[1] >> 32), <int32_t>of_record[1]

    cdef int keep_sizes(self) except -1:
        cdef int32_t index
        cdef Fields fields
        cdef const uint8_t* at = self._data + BATCH_HEADER
        if self._sizes != NULL or self._count == 0:
            return 0
        self._sizes = <int64_t*>malloc(16 * <size_t>self._count)
        if self._sizes == NULL:
            raise MemoryError
        for index in range(self._count):
            read_record(at, self._data + self._size, &fields)
            self._sizes[2 * index] = fields.timestamp_delta
            self._sizes[2 * index + 1] = <int64_t>(<uint64_t>fields.key_size << 32 | <uint32_t>fields.value_size)
            at = fields.end
        return 0

    def forget(self):
        """Frees the memory of the records, unless something refers to it. Only `len` and `sizes` still work."""
        if self._exports or self._data == NULL:
            return
        self._is_closed = True
        self.keep_sizes()
        self._records = None
        free(self._data)
        self._data = NULL
        self._capacity = self._size = 0

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if self._records is None:
            assert self._data != NULL or not self._count, "the records were forgotten"
            self._records = self.decode()
        return self._records[index]

    def __iter__(self):
        return iter(self[:])

    cdef list decode(self):
        cdef Fields fields
        cdef list records = []
        cdef const uint8_t* at = self._data + BATCH_HEADER
        for _ in range(self._count):
            read_record(at, self._data + self._size, &fields)
            headers = read_headers(&fields) if has_headers(&fields) else ()
            records.append((
                self.base_timestamp_ms + fields.timestamp_delta,
                bytes_of(fields.key, fields.key_size),
                bytes_of(fields.value, fields.value_size),
                headers,
            ))
            at = fields.end
        return records

    def __getbuffer__(self, Py_buffer* view, int flags):
        if not self._is_closed or self._data == NULL:
            raise BufferError("the batch is open, or its records were forgotten")
        PyBuffer_FillInfo(view, self, self._data, self._size, 1, flags)
        self._exports += 1

    def __releasebuffer__(self, Py_buffer* view):
        self._exports -= 1


cdef Py_ssize_t size_bound(object key, object value, tuple headers) except -1:
    """Returns an upper bound of a record's size (klamm.records.encoder.estimate_size_bytes)."""
    cdef Py_ssize_t size = OVERHEAD
    if key is not None:
        size += PyBytes_GET_SIZE(key)
    if value is not None:
        size += PyBytes_GET_SIZE(value)
    if headers is not None:
        for name, content in headers:
            size += HEADER_OVERHEAD + UTF8_BYTES_MAX * len(<str?>name)
            if content is not None:
                size += PyBytes_GET_SIZE(<bytes?>content)
    return size


cdef Py_ssize_t sizes_of_headers(tuple headers) except -1:
    """Returns the encoded size of the headers. Also encodes their names as UTF-8, which a str keeps."""
    cdef Py_ssize_t size = varint_size(len(headers)), name_size
    for pair in headers:
        PyUnicode_AsUTF8AndSize(<str?>(<tuple?>pair)[0], &name_size)
        size += varint_size(name_size) + name_size
        content = (<tuple>pair)[1]
        if content is None:
            size += 1
        else:
            size += varint_size(PyBytes_GET_SIZE(<bytes?>content)) + PyBytes_GET_SIZE(content)
    return size


cdef uint8_t* put_headers(uint8_t* at, tuple headers) except NULL:
    cdef Py_ssize_t size
    cdef const char* name
    at = put_varint(at, len(headers))
    for pair in headers:
        name = PyUnicode_AsUTF8AndSize((<tuple>pair)[0], &size)
        at = put_varint(at, size)
        memcpy(at, name, size)
        at += size
        content = (<tuple>pair)[1]
        if content is None:
            at = put_varint(at, -1)
        else:
            size = PyBytes_GET_SIZE(content)
            at = put_varint(at, size)
            memcpy(at, PyBytes_AS_STRING(content), size)
            at += size
    return at


# --- batches and queues

cdef class BatchFields:
    """The attributes of klamm.producer.batch.Batch."""

    cdef public object tp, appended, records, callbacks, result, stamp, encoded, last_error
    cdef public int64_t created_ms, reserved_bytes, limit_bytes, size_bytes
    cdef public Py_ssize_t start, attempts
    cdef public bint is_expired, is_settled


cdef class QueueFields:
    """The attributes of klamm.producer.accumulator.PartitionQueue."""

    cdef public object tp, batches, open, in_flight
    cdef public int64_t retry_at_ms, leader_epoch
    cdef public bint awaits_leader, one_at_a_time


cdef class TopicFields:
    """The attributes of klamm.producer.accumulator.TopicQueues."""

    cdef public object name, infos, _partitioner, _queue_of
    cdef public list queues


cdef uint32_t murmur2_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t multiplier = 0x5BD1E995, value = <uint32_t>0x9747B28C ^ <uint32_t>size, word
    cdef Py_ssize_t at = 0, rest = size & 3
    while at < size - rest:
        word = (
            data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        ) * multiplier
        value = (value * multiplier) ^ ((word ^ word >> 24) * multiplier)
        at += 4
    if rest:
        word = data[at]
        if rest > 1:
            word |= <uint32_t>data[at + 1] << 8
        if rest > 2:
            word |= <uint32_t>data[at + 2] << 16
        value = (value ^ word) * multiplier
    value = (value ^ value >> 13) * multiplier
    return value ^ value >> 15


def murmur2(bytes data not None):
    """Returns the murmur2 hash of the data, unsigned (Kafka's `Utils.murmur2`)."""
    return murmur2_of(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef enum:
    STICKY = 16384


cdef class DefaultPartitioner:
    """klamm.partitioner.DefaultPartitioner, with the same choices for the same random numbers."""

    cdef bint _ignore_keys
    cdef object _rng, _preferred, _batch, _queues
    cdef Py_ssize_t _current, _count
    cdef int64_t _bytes_left

    def __init__(self, *, ignore_keys, rng):
        self._ignore_keys = ignore_keys
        self._rng = rng
        self._queues = self._preferred = ()
        self._current = -1

    def update(self, queues, preferred):
        self._queues = queues
        self._count = len(queues)
        self._preferred = preferred or range(len(queues))
        if self._current not in self._preferred:
            self._current = -1

    def choose(self, key, int64_t size_bytes):
        return self.pick(key, size_bytes)

    cdef Py_ssize_t pick(self, object key, int64_t size_bytes) except -1:
        cdef Py_ssize_t current = self._current
        if key is not None and not self._ignore_keys:
            return (
                murmur2_of(<const uint8_t*>PyBytes_AS_STRING(<bytes?>key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF
            ) % self._count
        if current >= 0:
            queue = self._queues[current]
            batch = queue.open
            self._bytes_left -= size_bytes
            if batch is not None and (batch is self._batch or self._batch is None):
                self._batch = batch
                if self._bytes_left >= 0 or not queue.in_flight:
                    return current
        current = self._current = self._rng.choice(self._preferred)
        self._batch = self._queues[current].open
        self._bytes_left = STICKY - size_bytes
        return current


# --- futures

@cython.freelist(512)
@cython.no_gc
@cython.final
cdef class RecordFuture:
    """The outcome of one `Producer.send`. May be used from any thread."""

    cdef readonly object _result
    cdef readonly Py_ssize_t _index

    def __init__(self, result, index):
        self._result = result
        self._index = index

    def done(self):
        """Returns whether the outcome is known."""
        return self._result.done

    def result(self, timeout=None):
        """Waits until the record is acknowledged, and returns its metadata. Raises the record's error.

        Raises TimeoutError if the outcome is not known after `timeout` seconds."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def get(self, timeout=None):
        """The same as `result`, under the name that it has in kafka-python and Kafka's Java client."""
        return self.result(timeout)

    def exception(self, timeout=None):
        """Waits like `result`, and returns the record's error or None."""
        if not self._result.done:
            _wait_for(self._result, timeout)
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function):
        """Calls `function(self)` on the producer's loop thread when the outcome is known. Calls it at once if it is
        known already."""
        _call_when_done(self, function)

    def __repr__(self):
        return f"<RecordFuture {self._result.describe(self._index)}>"


@cython.freelist(512)
@cython.no_gc
@cython.final
cdef class AsyncRecordFuture:
    """The outcome of one `AsyncProducer.send`. Await it for the metadata. It belongs to the producer's event loop."""

    cdef readonly object _result
    cdef readonly Py_ssize_t _index

    def __init__(self, result, index):
        self._result = result
        self._index = index

    def done(self):
        """Returns whether the outcome is known."""
        return self._result.done

    def result(self):
        """Returns the record's metadata, or raises its error. Raises asyncio.InvalidStateError while the outcome is not
        known."""
        error = self.exception()
        if error is not None:
            raise error
        return self._result.metadata(self._index, self._result.outcome_of(self._index))

    def exception(self):
        """Returns the record's error, or None. Raises asyncio.InvalidStateError while the outcome is not known."""
        if not self._result.done:
            raise _asyncio.InvalidStateError("the outcome is not known yet")
        return self._result.outcome_of(self._index).error

    def add_done_callback(self, function):
        """Calls `function(self)` when the outcome is known. Calls it at once if it is known already."""
        _call_when_done(self, function)

    def __repr__(self):
        return f"<AsyncRecordFuture {self._result.describe(self._index)}>"

    def __await__(self):
        return _wait_on_loop(self)


@cython.freelist(64)
@cython.final
cdef class Done:
    """A coroutine that has ended already: awaiting it gives its result without a turn of the loop."""

    cdef object _result

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self._result)

    def send(self, value):
        raise StopIteration(self._result)

    def throw(self, kind, value=None, traceback=None):
        raise kind if value is None else value

    def close(self):
        pass


_Coroutine.register(Done)

cdef object _wait_for, _call_when_done, _wait_on_loop


def use_future(wait_for, call_when_done, wait_on_loop):
    """Takes these functions from klamm.producer.future, which imports this module."""
    global _wait_for, _call_when_done, _wait_on_loop
    _wait_for, _call_when_done, _wait_on_loop = wait_for, call_when_done, wait_on_loop


# --- sending

cdef struct Placed:
    PyObject* result  # with a reference of its own
    Py_ssize_t index


cdef class SendPath:
    """The base class of Producer: `send` for records that need nothing unusual. All others go to
    `Producer._send_in_python`, or to `Producer._send_slowly` when they are serialized already."""

    __class_getitem__ = classmethod(_types.GenericAlias)

    cdef dict topics
    cdef Lock lock
    cdef object accumulator, transaction, intake, key_serializer, value_serializer
    cdef int64_t size_bytes_max
    cdef bint is_plain

    def _begin_core(self, engine, intake, bint is_plain):
        """Call this once, before the first `send`. `is_plain` is false if the producer has interceptors or a
        partitioner of the user."""
        self.topics = engine.topics
        self.lock = engine.lock
        self.accumulator = engine.accumulator
        self.transaction = engine.transaction_state
        self.intake = intake
        self.key_serializer = intake.key_serializer
        self.value_serializer = intake.value_serializer
        self.size_bytes_max = intake.size_bytes_max
        self.is_plain = is_plain

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None, on_delivery=None):
        cdef RecordFuture future
        cdef Placed placed
        if not self.is_plain or not PyUnicode_CheckExact(topic):
            return self._send_in_python(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers,
                on_delivery=on_delivery,
            )
        rest = self.buffer(topic, value, key, partition, timestamp_ms, headers, on_delivery, &placed)
        if rest is not None:
            return self._send_slowly(*rest)
        future = RecordFuture.__new__(RecordFuture)
        future._result = <object>placed.result
        Py_DECREF(future._result)
        future._index = placed.index
        return future

    cdef tuple buffer(
        self, topic, object value, object key, object partition, object timestamp_ms, object headers,
        object on_delivery, Placed* placed
    ):
        """Checks, serializes and appends a record. Returns None, or the arguments of `_send_slowly` if the topic is not
        known, or a new batch or more memory is needed."""
        cdef int64_t time_ms, size_bytes
        cdef PyObject* found
        cdef TopicFields queues
        cdef QueueFields queue = None
        cdef tuple encodable = None
        if partition is not None:
            _check_partition(partition)
        if key is not None and (self.key_serializer is not None or not PyBytes_CheckExact(key)):
            key = <bytes?>_serialize("key", topic, key, self.key_serializer)
        if value is not None and (self.value_serializer is not None or not PyBytes_CheckExact(value)):
            value = <bytes?>_serialize("value", topic, value, self.value_serializer)
        time_ms = klamm_now_ms() if timestamp_ms is None else _checked_timestamp_ms(timestamp_ms)
        if headers:
            encodable = _checked_headers(topic, headers)
        size_bytes = size_bound(key, value, encodable)
        if size_bytes > self.size_bytes_max:
            raise self.intake.too_large_record(topic, size_bytes)
        found = PyDict_GetItemWithError(self.topics, topic)
        if found != NULL:
            queues = <TopicFields>found
            self.lock.take()
            try:
                queue = queue_for(queues, partition, key, size_bytes)
                if queue is not None:
                    if self.transaction is not None:
                        self.transaction.require_open("send")
                    if self.place(queue, time_ms, key, value, encodable, size_bytes, on_delivery, placed):
                        return None
            finally:
                self.lock.drop()
        record = (time_ms, key, value, () if encodable is None else encodable)
        return topic, partition, queue, record, size_bytes, on_delivery

    cdef bint place(
        self, QueueFields queue, int64_t time_ms, object key, object value, tuple headers, int64_t size_bytes,
        object on_delivery, Placed* placed
    ) except -1:
        """Appends to the open batch. Returns false if a new batch or more memory is needed. The caller holds the lock.

        What may run other Python comes first: a signal handler or a destructor may use the producer."""
        cdef list callback = None
        cdef BatchFields batch
        cdef int64_t total_bytes, index
        if on_delivery is not None:
            callback = [None, on_delivery]
        while True:
            if queue.open is None:
                return False
            batch = <BatchFields?>queue.open
            total_bytes = batch.size_bytes + size_bytes
            if total_bytes <= batch.reserved_bytes:
                break
            if not self.accumulator.grow(queue, batch, total_bytes):
                return False
        index = (<OpenBatch?>batch.appended).add(time_ms, key, value, headers, size_bytes)
        if index < 0:
            return False
        batch.size_bytes = total_bytes
        if callback is not None:
            callback[0] = index
            (<list?>batch.callbacks).append(callback)
        placed.index = index
        placed.result = <PyObject*>batch.result
        Py_INCREF(batch.result)
        if total_bytes + size_bytes > batch.limit_bytes:
            try:
                self.accumulator.close_full(queue, batch)
            except BaseException:
                Py_DECREF(<object>placed.result)
                raise
        return True


    def _append_many(self, topic, list values, list keys, partition, headers, Py_ssize_t start, Py_ssize_t stop, runs):
        """Appends the values from `start` to `stop`, which are checked bytes or None, as long as each fits at once. Adds
        [result, first index, last index] of each batch to `runs`. Returns the position of the first value that did not
        fit, or `stop`."""
        cdef PyObject* found = PyDict_GetItemWithError(self.topics, topic)
        cdef int64_t time_ms = klamm_now_ms(), size_bytes
        cdef TopicFields queues
        cdef QueueFields queue
        cdef Placed placed
        cdef list run = None
        cdef tuple encodable = headers if headers else None
        cdef Py_ssize_t at
        if found == NULL:
            return start
        queues = <TopicFields>found
        self.lock.take()
        try:
            if self.transaction is not None:
                self.transaction.require_open("send_many")
            for at in range(start, stop):
                key = None if keys is None else keys[at]
                size_bytes = size_bound(key, values[at], encodable)
                queue = queue_for(queues, partition, key, size_bytes)
                if queue is None or not self.place(
                    queue, time_ms, key, values[at], encodable, size_bytes, None, &placed
                ):
                    return at
                result = <object>placed.result
                Py_DECREF(result)
                if run is None or run[0] is not result or run[2] != placed.index - 1:
                    run = [result, placed.index, placed.index]
                    runs.append(run)
                else:
                    run[2] = placed.index
            return stop
        finally:
            self.lock.drop()


cdef class AsyncSendPath(SendPath):
    """The base class of AsyncProducer, as SendPath is that of Producer. `_send_in_python` and `_send_slowly` are
    coroutine functions."""

    cdef object home

    def _begin_on_loop(self, loop):
        """Call this once with the producer's event loop."""
        self.home = loop

    def send(self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None, on_delivery=None):
        cdef AsyncRecordFuture future
        cdef Done done
        cdef Placed placed
        if not self.is_plain or not PyUnicode_CheckExact(topic) or _running_loop() is not self.home:
            return self._send_in_python(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers,
                on_delivery=on_delivery,
            )
        rest = self.buffer(topic, value, key, partition, timestamp_ms, headers, on_delivery, &placed)
        if rest is not None:
            return self._send_slowly(*rest)
        future = async_future(&placed)
        done = Done.__new__(Done)
        done._result = future
        return done

    def send_now(
        self, topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None, on_delivery=None
    ):
        cdef Placed placed
        if not self.is_plain or not PyUnicode_CheckExact(topic) or _running_loop() is not self.home:
            return self._send_now_in_python(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers,
                on_delivery=on_delivery,
            )
        rest = self.buffer(topic, value, key, partition, timestamp_ms, headers, on_delivery, &placed)
        return async_future(&placed) if rest is None else self._place_now(*rest)


cdef AsyncRecordFuture async_future(Placed* placed):
    cdef AsyncRecordFuture future = AsyncRecordFuture.__new__(AsyncRecordFuture)
    future._result = <object>placed.result
    Py_DECREF(future._result)
    future._index = placed.index
    return future


cdef QueueFields queue_for(TopicFields topic, object partition, object key, int64_t size_bytes):
    """Returns the queue for a record, or None if its partition does not exist. Raises the errors of a partitioner."""
    cdef Py_ssize_t number
    if partition is not None:
        if not 0 <= partition < len(topic.queues):
            return None
        number = partition
    elif type(topic._partitioner) is DefaultPartitioner:
        number = (<DefaultPartitioner>topic._partitioner).pick(key, size_bytes)
    else:
        number = topic._partitioner.choose(key, size_bytes)
    return <QueueFields>topic.queues[number] if 0 <= number < len(topic.queues) else None


cdef object _check_partition, _serialize, _checked_headers, _checked_timestamp_ms


def use_intake(module):
    """Takes the checks of a record from klamm.producer.intake, which imports this module."""
    global _check_partition, _serialize, _checked_headers, _checked_timestamp_ms
    _check_partition = module.check_partition
    _serialize = module.serialize
    _checked_headers = module.checked_headers
    _checked_timestamp_ms = module.checked_timestamp_ms


# --- records

cdef class BatchView:
    """What the records of one batch share, and the bytes that they point into."""

    cdef object topic, partition, timestamp_type, leader_epoch
    cdef const uint8_t* data
    cdef Py_buffer view
    cdef bint has_view

    def __dealloc__(self):
        if self.has_view:
            PyBuffer_Release(&self.view)


cdef object _topic_partition
_FIELDS = (
    "topic", "partition", "offset", "timestamp", "key", "value", "headers", "timestamp_type", "leader_epoch"
)


def use_topic_partition(kind):
    """Takes the class from klamm.model, for `ConsumerRecord.topic_partition`."""
    global _topic_partition
    _topic_partition = kind


@cython.freelist(1024)
@cython.final
cdef class ConsumerRecord:
    """One record of a topic-partition. It unpacks, compares and hashes like a tuple of its fields.

    topic, partition, offset: the record's place. An offset is a record's number in its partition.
    timestamp: milliseconds since the epoch. `timestamp_type` tells whether the producer or the broker set it.
    key, value: as `key.deserializer` and `value.deserializer` return them, by default bytes. None for a null.
    headers: pairs of a name and bytes (or None), in the producer's order.
    leader_epoch: the epoch of the partition's leader that appended the record.

    Without a deserializer, each access of key, value or headers makes the object anew from the bytes of the batch. So a
    record that is kept keeps its batch, of up to 1 MiB. `tuple(record)` does not."""

    __class_getitem__ = classmethod(_types.GenericAlias)
    __match_args__ = _FIELDS
    _fields = _FIELDS

    cdef BatchView batch
    cdef readonly int64_t offset
    """The record's number in its partition."""
    cdef readonly int64_t timestamp
    """Milliseconds since the epoch. `timestamp_type` tells which side set the time."""
    cdef object _key, _value, _headers
    cdef int32_t key_at, key_size, value_at, value_size, headers_at, headers_size  # key_at is -1 if there are objects

    def __init__(self, topic, partition, offset, timestamp, key, value, headers, timestamp_type, leader_epoch):
        cdef BatchView batch = BatchView.__new__(BatchView)
        batch.topic = topic
        batch.partition = partition
        batch.timestamp_type = timestamp_type
        batch.leader_epoch = leader_epoch
        self.batch = batch
        self.offset = offset
        self.timestamp = timestamp
        self.hold(key, value, headers)

    cdef void hold(self, object key, object value, object headers) noexcept:
        self._key = key
        self._value = value
        self._headers = headers
        self.key_at = -1

    @property
    def topic(self):
        """The name of the topic."""
        return self.batch.topic

    @property
    def partition(self):
        """The number of the partition."""
        return self.batch.partition

    @property
    def key(self):
        """The key as `key.deserializer` returns it, or None."""
        return self._key if self.key_at < 0 else bytes_of(self.batch.data + self.key_at, self.key_size)

    @property
    def value(self):
        """The value as `value.deserializer` returns it, or None."""
        return self._value if self.key_at < 0 else bytes_of(self.batch.data + self.value_at, self.value_size)

    @property
    def headers(self):
        """Pairs of name and bytes (or None), in the producer's order."""
        cdef Fields fields
        if self.key_at < 0:
            return self._headers
        if self.headers_size <= 1:
            return ()
        fields.headers = self.batch.data + self.headers_at
        fields.end = fields.headers + self.headers_size
        return read_headers(&fields)

    @property
    def timestamp_type(self):
        """The side that set the time."""
        return self.batch.timestamp_type

    @property
    def leader_epoch(self):
        """The epoch of the partition's leader that appended the record."""
        return self.batch.leader_epoch

    @property
    def topic_partition(self):
        return _topic_partition(self.batch.topic, self.batch.partition)

    cdef tuple as_tuple(self):
        return (
            self.batch.topic, self.batch.partition, self.offset, self.timestamp, self.key, self.value, self.headers,
            self.batch.timestamp_type, self.batch.leader_epoch,
        )

    def __len__(self):
        return 9

    def __iter__(self):
        return iter(self.as_tuple())

    def __getitem__(self, index):
        return self.as_tuple()[index]

    def __contains__(self, item):
        return item in self.as_tuple()

    def __hash__(self):
        return hash(self.as_tuple())

    def __eq__(self, other):
        other = tuple_or_none(other)
        return NotImplemented if other is None else self.as_tuple() == other

    def __lt__(self, other):
        other = tuple_or_none(other)
        return NotImplemented if other is None else self.as_tuple() < other

    def __le__(self, other):
        other = tuple_or_none(other)
        return NotImplemented if other is None else self.as_tuple() <= other

    def __gt__(self, other):
        other = tuple_or_none(other)
        return NotImplemented if other is None else self.as_tuple() > other

    def __ge__(self, other):
        other = tuple_or_none(other)
        return NotImplemented if other is None else self.as_tuple() >= other

    def __repr__(self):
        fields = ", ".join(f"{name}={item!r}" for name, item in zip(_FIELDS, self.as_tuple()))
        return f"ConsumerRecord({fields})"

    def __reduce__(self):
        return ConsumerRecord, self.as_tuple()

    def count(self, item):
        """Returns how many fields are equal to `item`."""
        return self.as_tuple().count(item)

    def index(self, item, *range):
        """Returns the first position of `item` among the fields. Raises ValueError."""
        return self.as_tuple().index(item, *range)

    @classmethod
    def _make(cls, fields):
        """Returns a record of these fields."""
        return cls(*fields)

    def _asdict(self):
        """Returns the fields by name."""
        return dict(zip(_FIELDS, self.as_tuple()))

    def _replace(self, **fields):
        """Returns a record with other values of these fields."""
        unknown = fields.keys() - set(_FIELDS)
        if unknown:
            raise ValueError(f"a ConsumerRecord has no fields {sorted(unknown)}")
        return ConsumerRecord(**{**self._asdict(), **fields})


cdef object tuple_or_none(object other):
    if isinstance(other, ConsumerRecord):
        return (<ConsumerRecord>other).as_tuple()
    return other if isinstance(other, tuple) else None


def with_contents(ConsumerRecord record not None, key, value):
    """Returns the record with a deserialized key and value."""
    cdef ConsumerRecord made = ConsumerRecord.__new__(ConsumerRecord)
    made.batch = BatchView.__new__(BatchView)
    made.batch.topic = record.batch.topic
    made.batch.partition = record.batch.partition
    made.batch.timestamp_type = record.batch.timestamp_type
    made.batch.leader_epoch = record.batch.leader_epoch
    made.offset = record.offset
    made.timestamp = record.timestamp
    made.hold(key, value, record.headers)
    return made


# --- decoding

def decode_rows(section, topic, partition, timestamp_type, int64_t first_offset):
    """Returns the records of a RecordSection from `first_offset` on. They keep `section.data`. Returns None if a record
    is broken."""
    cdef object header = section.header
    cdef BatchView batch
    cdef Py_ssize_t start = section.start, end = section.end
    cdef int64_t base_offset = header.base_offset
    if not 0 <= base_offset <= INT64_MAX - INT32_MAX:
        return None
    batch = BatchView.__new__(BatchView)
    PyObject_GetBuffer(section.data, &batch.view, PyBUF_SIMPLE)
    batch.has_view = True
    if not 0 <= start <= end <= batch.view.len or end - start > INT32_MAX:
        return None
    batch.data = <const uint8_t*>batch.view.buf + start
    batch.topic = topic
    batch.partition = partition
    batch.timestamp_type = timestamp_type
    batch.leader_epoch = header.partition_leader_epoch
    return rows_of(
        batch, batch.data + (end - start), header.record_count, base_offset, header.base_timestamp_ms,
        header.max_timestamp_ms, timestamp_type != 0, first_offset,
    )


cdef list rows_of(
    BatchView batch, const uint8_t* end, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp_ms,
    int64_t log_append_time_ms, bint is_log_append_time, int64_t first_offset
):
    cdef const uint8_t* at = batch.data
    cdef Fields fields
    cdef Py_ssize_t number
    cdef int64_t timestamp_ms
    cdef bint begins_earlier = False
    cdef ConsumerRecord record
    cdef list rows = []
    for number in range(count):
        if not read_record(at, end, &fields) or not check_headers(&fields):
            return None
        at = fields.end
        timestamp_ms = log_append_time_ms
        if not is_log_append_time:
            if sum_is_out_of_range(base_timestamp_ms, fields.timestamp_delta):
                return None
            timestamp_ms = base_timestamp_ms + fields.timestamp_delta
        if number == 0:
            begins_earlier = base_offset + fields.offset_delta < first_offset
        if begins_earlier and base_offset + fields.offset_delta < first_offset:
            continue
        record = ConsumerRecord.__new__(ConsumerRecord)
        # It refers only to its batch, which refers to no record. So the garbage collector need not look at it.
        PyObject_GC_UnTrack(<PyObject*>record)
        record.batch = batch
        record.offset = base_offset + fields.offset_delta
        record.timestamp = timestamp_ms
        record.key_at = <int32_t>(fields.key - batch.data)
        record.key_size = <int32_t>fields.key_size
        record.value_at = <int32_t>(fields.value - batch.data)
        record.value_size = <int32_t>fields.value_size
        record.headers_at = <int32_t>(fields.headers - batch.data)
        record.headers_size = <int32_t>(fields.end - fields.headers)
        rows.append(record)
    return rows if at == end else None


cdef inline bint sum_is_out_of_range(int64_t base, int64_t delta) noexcept nogil:
    """Returns whether a timestamp is not an int64, or is its least value, which the pure decoder refuses too."""
    if delta >= 0:
        return base > INT64_MAX - delta or base + delta < -INT64_MAX
    return base < -INT64_MAX - delta


# --- columns

@cython.final
cdef class GrownArray:
    """A C array that grows, and that others read as a buffer without a copy when it grows no more."""

    cdef uint8_t* data
    cdef Py_ssize_t size, capacity

    def __cinit__(self):
        self.capacity = 64
        self.data = <uint8_t*>malloc(self.capacity)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.data)

    cdef bint reserve(self, Py_ssize_t more) noexcept nogil:
        """Makes room for so many further bytes. Returns false if there is no memory."""
        cdef Py_ssize_t wanted = self.size + more
        cdef uint8_t* data
        if wanted > self.capacity:
            wanted = max(wanted, 2 * self.capacity)
            data = <uint8_t*>realloc(self.data, wanted)
            if data == NULL:
                return False
            self.data = data
            self.capacity = wanted
        return True

    cdef void shrink(self) noexcept nogil:
        """Gives back the memory that is not used."""
        cdef uint8_t* data = <uint8_t*>realloc(self.data, max(self.size, 1))
        if data != NULL:
            self.data = data
            self.capacity = max(self.size, 1)

    cdef inline void put(self, const uint8_t* data, int64_t size) noexcept nogil:
        memcpy(self.data + self.size, data, size)
        self.size += size

    cdef inline void put_int32(self, int32_t number) noexcept nogil:
        (<int32_t*>(self.data + self.size))[0] = number
        self.size += 4

    cdef inline void put_int64(self, int64_t number) noexcept nogil:
        (<int64_t*>(self.data + self.size))[0] = number
        self.size += 8

    cdef inline void put_bit(self, Py_ssize_t row, bint is_set) noexcept nogil:
        if row & 7 == 0:
            self.data[row >> 3] = 0
            self.size = (row >> 3) + 1
        if is_set:
            self.data[row >> 3] |= 1 << (row & 7)
        else:
            self.data[row >> 3] &= ~(1 << (row & 7))

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


@cython.final
cdef class BinaryRows:
    """A column of nullable bytes, in Arrow's form: a bit for each row that is not null, the ends, and the bytes."""

    cdef readonly GrownArray valid, ends, data
    cdef readonly Py_ssize_t row_count, null_count

    def __cinit__(self):
        self.valid = GrownArray.__new__(GrownArray)
        self.ends = GrownArray.__new__(GrownArray)
        self.data = GrownArray.__new__(GrownArray)
        self.ends.put_int32(0)

    cdef bint reserve(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        """Makes room for rows with `size` bytes in all. Returns false if there is no memory."""
        return self.valid.reserve(rows + 1) and self.ends.reserve(4 * rows) and self.data.reserve(size)

    cdef inline void add(self, const uint8_t* data, int64_t size) noexcept nogil:
        """Appends a row, for which there is room. The size of a null is -1."""
        self.valid.put_bit(self.row_count, size >= 0)
        if size > 0:
            self.data.put(data, size)
        self.null_count += size < 0
        self.ends.put_int32(<int32_t>self.data.size)
        self.row_count += 1

    cdef void cut(self, Py_ssize_t row_count, Py_ssize_t null_count) noexcept nogil:
        """Removes the rows after the first `row_count`."""
        self.row_count = row_count
        self.null_count = null_count
        self.ends.size = 4 * (row_count + 1)
        self.valid.size = (row_count + 7) >> 3
        self.data.size = (<int32_t*>self.ends.data)[row_count]

    cdef void shrink(self) noexcept nogil:
        self.valid.shrink()
        self.ends.shrink()
        self.data.shrink()


cdef enum:
    ADDED = 1
    BROKEN = 0
    NO_MEMORY = -1
    TOO_LARGE = -2


@cython.final
cdef class ColumnRows:
    """Columns of the records of many batches of one partition: arrays of C that become Arrow's without a copy. They are
    filled without the interpreter lock.

    A column that is not wanted is None. `header_ends` has the number of headers up to each row."""

    cdef readonly GrownArray offset, timestamp, timestamp_type, leader_epoch, header_ends
    cdef readonly BinaryRows key, value, header_names, header_values
    cdef readonly Py_ssize_t row_count

    def __init__(self, wanted):
        self.offset = new_array("offset" in wanted)
        self.timestamp = new_array("timestamp" in wanted)
        self.timestamp_type = new_array("timestamp_type" in wanted)
        self.leader_epoch = new_array("leader_epoch" in wanted)
        self.key = BinaryRows() if "key" in wanted else None
        self.value = BinaryRows() if "value" in wanted else None
        if "headers" in wanted:
            self.header_ends = new_array(True)
            self.header_ends.put_int32(0)
            self.header_names = BinaryRows()
            self.header_values = BinaryRows()

    def add(self, section, int64_t start_offset, int64_t end_offset):
        """Adds the records of a RecordSection whose offsets are in the range. Returns False, and adds nothing, if a
        record is broken. Raises OverflowError if a column would have 2 GiB or more."""
        cdef object header = section.header
        cdef Py_ssize_t start = section.start, end = section.end, count = header.record_count
        cdef int64_t base_offset = header.base_offset, base_timestamp_ms = header.base_timestamp_ms
        cdef int64_t log_append_time_ms = header.max_timestamp_ms
        cdef int32_t leader_epoch = header.partition_leader_epoch
        cdef bint is_log_append_time = header.timestamp_type != 0
        cdef Py_buffer view
        cdef int outcome
        if not 0 <= base_offset <= INT64_MAX - INT32_MAX:
            return False
        PyObject_GetBuffer(section.data, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len or not 0 <= count <= end - start:
                return False
            with nogil:
                outcome = self.fill(
                    <const uint8_t*>view.buf + start, <const uint8_t*>view.buf + end, count, base_offset,
                    base_timestamp_ms, log_append_time_ms, is_log_append_time, leader_epoch, start_offset, end_offset,
                )
        finally:
            PyBuffer_Release(&view)
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == TOO_LARGE:
            raise OverflowError("a column of records has at most 2,147,483,647 bytes")
        return outcome == ADDED

    cdef int fill(
        self, const uint8_t* at, const uint8_t* end, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp_ms,
        int64_t log_append_time_ms, bint is_log_append_time, int32_t leader_epoch, int64_t start_offset,
        int64_t end_offset
    ) noexcept nogil:
        cdef Py_ssize_t rows_before = self.row_count, headers_before = 0
        cdef Py_ssize_t key_nulls = 0, value_nulls = 0, header_nulls = 0
        cdef int outcome = self.reserve(count, end - at)
        if self.key is not None:
            key_nulls = self.key.null_count
        if self.value is not None:
            value_nulls = self.value.null_count
        if self.header_ends is not None:
            headers_before = self.header_names.row_count
            header_nulls = self.header_values.null_count
        if outcome == ADDED:
            outcome = self.read(
                at, end, count, base_offset, base_timestamp_ms, log_append_time_ms, is_log_append_time, leader_epoch,
                start_offset, end_offset,
            )
        if outcome != ADDED:
            self.cut(rows_before, key_nulls, value_nulls, headers_before, header_nulls)
        return outcome

    cdef int reserve(self, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
        """Makes room for the records of a section, but not for the contents of headers."""
        if self.row_count + count >= INT32_MAX:
            return TOO_LARGE
        if self.key is not None and self.key.data.size + size > INT32_MAX:
            return TOO_LARGE
        if self.value is not None and self.value.data.size + size > INT32_MAX:
            return TOO_LARGE
        if (
            (self.key is None or self.key.reserve(count, size))
            and (self.value is None or self.value.reserve(count, size))
            and (self.offset is None or self.offset.reserve(8 * count))
            and (self.timestamp is None or self.timestamp.reserve(8 * count))
            and (self.timestamp_type is None or self.timestamp_type.reserve(count))
            and (self.leader_epoch is None or self.leader_epoch.reserve(4 * count))
            and (self.header_ends is None or self.header_ends.reserve(4 * count))
        ):
            return ADDED
        return NO_MEMORY

    cdef int read(
        self, const uint8_t* at, const uint8_t* end, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp_ms,
        int64_t log_append_time_ms, bint is_log_append_time, int32_t leader_epoch, int64_t start_offset,
        int64_t end_offset
    ) noexcept nogil:
        cdef Fields fields
        cdef int64_t timestamp_ms, offset
        cdef uint8_t timestamp_type = is_log_append_time
        cdef int outcome
        for _ in range(count):
            if not read_record(at, end, &fields) or not check_headers(&fields):
                return BROKEN
            at = fields.end
            timestamp_ms = log_append_time_ms
            if not is_log_append_time:
                if sum_is_out_of_range(base_timestamp_ms, fields.timestamp_delta):
                    return BROKEN
                timestamp_ms = base_timestamp_ms + fields.timestamp_delta
            offset = base_offset + fields.offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            if self.offset is not None:
                self.offset.put_int64(offset)
            if self.timestamp is not None:
                self.timestamp.put_int64(timestamp_ms)
            if self.timestamp_type is not None:
                self.timestamp_type.put(&timestamp_type, 1)
            if self.leader_epoch is not None:
                self.leader_epoch.put_int32(leader_epoch)
            if self.key is not None:
                self.key.add(fields.key, fields.key_size)
            if self.value is not None:
                self.value.add(fields.value, fields.value_size)
            if self.header_ends is not None:
                outcome = self.add_headers(&fields)
                if outcome != ADDED:
                    return outcome
            self.row_count += 1
        return ADDED if at == end else BROKEN

    cdef int add_headers(self, Fields* fields) noexcept nogil:
        """Appends the headers of a record, which are checked."""
        cdef int64_t count = 0, size
        cdef const uint8_t* at = get_varint(fields.headers, fields.end, 32, &count)
        cdef int outcome
        while count > 0:
            at = get_varint(at, fields.end, 32, &size)
            outcome = self.add_name(at, size)
            if outcome != ADDED:
                return outcome
            at = get_varint(at + size, fields.end, 32, &size)
            if self.header_values.data.size + size > INT32_MAX:
                return TOO_LARGE
            if not self.header_values.reserve(1, max(size, 0)):
                return NO_MEMORY
            self.header_values.add(at, size)
            if size > 0:
                at += size
            count -= 1
        self.header_ends.put_int32(<int32_t>self.header_names.row_count)
        return ADDED

    cdef int add_name(self, const uint8_t* at, int64_t size) noexcept nogil:
        """Appends the name of a header. Bytes that are not UTF-8 are replaced, as `read_headers` does."""
        cdef int64_t index
        for index in range(size):
            if at[index] > 127:
                with gil:
                    return self.add_decoded(at, size)
        return self.add_utf8(at, size)

    cdef int add_decoded(self, const uint8_t* at, int64_t size) noexcept:
        cdef Py_ssize_t name_size
        cdef const char* encoded
        try:
            name = PyUnicode_DecodeUTF8(<const char*>at, size, "replace")
            encoded = PyUnicode_AsUTF8AndSize(name, &name_size)
            return self.add_utf8(<const uint8_t*>encoded, name_size)
        except MemoryError:
            return NO_MEMORY

    cdef int add_utf8(self, const uint8_t* at, int64_t size) noexcept nogil:
        if self.header_names.data.size + size > INT32_MAX:
            return TOO_LARGE
        if not self.header_names.reserve(1, size):
            return NO_MEMORY
        self.header_names.add(at, size)
        return ADDED

    cdef void cut(
        self, Py_ssize_t row_count, Py_ssize_t key_nulls, Py_ssize_t value_nulls, Py_ssize_t header_count,
        Py_ssize_t header_nulls
    ) noexcept nogil:
        """Removes the rows after the first `row_count`."""
        self.row_count = row_count
        if self.offset is not None:
            self.offset.size = 8 * row_count
        if self.timestamp is not None:
            self.timestamp.size = 8 * row_count
        if self.timestamp_type is not None:
            self.timestamp_type.size = row_count
        if self.leader_epoch is not None:
            self.leader_epoch.size = 4 * row_count
        if self.key is not None:
            self.key.cut(row_count, key_nulls)
        if self.value is not None:
            self.value.cut(row_count, value_nulls)
        if self.header_ends is not None:
            self.header_ends.size = 4 * (row_count + 1)
            self.header_names.cut(header_count, 0)
            self.header_values.cut(header_count, header_nulls)

    def shrink(self):
        """Gives back the memory that is not used. No rows may be added after this."""
        for array in (self.offset, self.timestamp, self.timestamp_type, self.leader_epoch, self.header_ends):
            if array is not None:
                (<GrownArray>array).shrink()
        for column in (self.key, self.value, self.header_names, self.header_values):
            if column is not None:
                (<BinaryRows>column).shrink()


cdef GrownArray new_array(bint is_requested):
    return GrownArray.__new__(GrownArray) if is_requested else None


# --- packing of columns

cdef class BinaryColumn:
    """A binary array of Arrow. `valid` (a bit for each row that is not null) may be None, and so may `data`. Raises
    ValueError if a row would not lie within the data."""

    cdef Py_buffer views[3]
    cdef bint has_view[3]
    cdef Py_ssize_t first, count
    cdef const uint8_t* valid
    cdef const int32_t* ends
    cdef const uint8_t* data

    def __init__(self, valid, ends, data, Py_ssize_t first, Py_ssize_t count):
        cdef int index = 0
        for buffer in (valid, ends, data):
            if buffer is not None:
                PyObject_GetBuffer(buffer, &self.views[index], PyBUF_SIMPLE)
                self.has_view[index] = True
            index += 1
        assert first >= 0 and count > 0 and self.has_view[1] and self.views[1].len >= 4 * (first + count + 1)
        assert not self.has_view[0] or 8 * self.views[0].len >= first + count
        self.first = first
        self.count = count
        self.valid = <const uint8_t*>self.views[0].buf if self.has_view[0] else NULL
        self.ends = <const int32_t*>self.views[1].buf
        self.data = <const uint8_t*>self.views[2].buf if self.has_view[2] else NULL
        if not self.lies_within(count, self.views[2].len if self.has_view[2] else 0):
            raise ValueError("malformed Arrow array: the ends of its rows decrease, or lie outside of its data")

    cdef bint lies_within(self, Py_ssize_t count, Py_ssize_t data_size) noexcept nogil:
        cdef const int32_t* ends = self.ends + self.first
        cdef Py_ssize_t row
        for row in range(count):
            if ends[row + 1] < ends[row]:
                return False
        return ends[0] >= 0 and ends[count] <= data_size

    def __dealloc__(self):
        for index in range(3):
            if self.has_view[index]:
                PyBuffer_Release(&self.views[index])

    cdef inline int64_t size(self, Py_ssize_t row) noexcept nogil:
        """Returns the size of a row's bytes, or -1 for a null."""
        row += self.first
        if self.valid != NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            return -1
        return self.ends[row + 1] - self.ends[row]

    cdef inline const uint8_t* at(self, Py_ssize_t row) noexcept nogil:
        return self.data + self.ends[self.first + row]


cdef struct Packing:
    Py_ssize_t count
    const int64_t* order
    const int64_t* targets
    const int64_t* timestamps_ms
    int64_t batch_bytes
    int64_t target_bytes  # of the rows of this target before the next batch
    bint is_after_large  # whether the row before is larger than a batch


cdef inline Py_ssize_t row_at(Packing* packing, Py_ssize_t index) noexcept nogil:
    return index if packing.order == NULL else packing.order[index]


def pack_rows(
    BinaryColumn keys, BinaryColumn values not None, BinaryColumn headers, const int64_t[::1] targets not None,
    const int64_t[::1] timestamps_ms not None, const int64_t[::1] order, int64_t batch_bytes
):
    """Returns (first row, number of rows, encoded records, base timestamp, largest timestamp) of batches with all rows,
    in the sequence `order`. `targets` and `timestamps_ms` are by row. Rows of one target are neighbours in it."""
    cdef Packing packing
    cdef Py_ssize_t begin = 0, end = 0
    cdef int64_t size = 0, max_timestamp_ms = 0
    cdef uint8_t* to
    cdef bint is_whole
    cdef list batches = []
    packing.count = targets.shape[0]
    assert timestamps_ms.shape[0] == packing.count and (order is None or order.shape[0] == packing.count)
    assert values.count == packing.count and (keys is None or keys.count == packing.count)
    assert headers is None or headers.count == packing.count
    if not packing.count:
        return batches
    packing.order = NULL if order is None else &order[0]
    packing.targets = &targets[0]
    packing.timestamps_ms = &timestamps_ms[0]
    packing.batch_bytes = batch_bytes
    packing.target_bytes = 0
    packing.is_after_large = False
    while begin < packing.count:
        with nogil:
            end = end_of_batch(&packing, keys, values, headers, begin)
            size = size_of_batch(&packing, keys, values, headers, begin, end)
        data = PyBytes_FromStringAndSize(NULL, size)
        to = <uint8_t*>PyBytes_AS_STRING(data)
        with nogil:
            is_whole = write_batch(&packing, keys, values, headers, begin, end, to, size, &max_timestamp_ms)
        if not is_whole:
            raise ValueError("the Arrow array was changed while it was encoded")
        first = row_at(&packing, begin)
        batches.append((first, end - begin, data, timestamps_ms[first], max_timestamp_ms))
        begin = end
    return batches


cdef Py_ssize_t end_of_batch(
    Packing* packing, BinaryColumn keys, BinaryColumn values, BinaryColumn headers, Py_ssize_t begin
) noexcept nogil:
    """Returns the index after the last row of the batch. A target's rows are cut where their sum passes a multiple of
    `batch_bytes`. A larger row is alone."""
    cdef int64_t target = packing.targets[row_at(packing, begin)], size, portion = -1
    cdef Py_ssize_t index = begin, row
    cdef bint is_large
    while index < packing.count:
        row = row_at(packing, index)
        if packing.targets[row] != target:
            packing.target_bytes = 0
            packing.is_after_large = False
            break
        size = 16 + max(values.size(row), 0)
        if keys is not None:
            size += max(keys.size(row), 0)
        if headers is not None:
            size += max(headers.size(row), 0)
        is_large = size > packing.batch_bytes
        if index > begin and (
            is_large or packing.is_after_large or (packing.target_bytes + size - 1) / packing.batch_bytes != portion
        ):
            break
        portion = (packing.target_bytes + size - 1) / packing.batch_bytes
        packing.target_bytes += size
        packing.is_after_large = is_large
        index += 1
    return index


cdef inline int64_t body_size(
    int64_t delta, int64_t number, int64_t key_size, int64_t value_size, int64_t headers_size
) noexcept nogil:
    return (
        1 + varint_size(delta) + varint_size(number) + varint_size(key_size) + varint_size(value_size)
        + max(key_size, 0) + max(value_size, 0) + headers_size
    )


cdef int64_t size_of_batch(
    Packing* packing, BinaryColumn keys, BinaryColumn values, BinaryColumn headers, Py_ssize_t begin, Py_ssize_t end
) noexcept nogil:
    cdef int64_t base_timestamp_ms = packing.timestamps_ms[row_at(packing, begin)], size = 0, body
    cdef Py_ssize_t index, row
    for index in range(begin, end):
        row = row_at(packing, index)
        body = body_size(
            packing.timestamps_ms[row] - base_timestamp_ms, index - begin, -1 if keys is None else keys.size(row),
            values.size(row), 1 if headers is None else max(headers.size(row), 0),
        )
        size += varint_size(body) + body
    return size


cdef bint write_batch(
    Packing* packing, BinaryColumn keys, BinaryColumn values, BinaryColumn headers, Py_ssize_t begin, Py_ssize_t end,
    uint8_t* to, int64_t left, int64_t* max_timestamp_ms
) noexcept nogil:
    """Writes the records, which have `left` bytes, and finds the largest timestamp. Returns false if they have another
    size."""
    cdef int64_t base_timestamp_ms = packing.timestamps_ms[row_at(packing, begin)]
    cdef int64_t timestamp_ms, key_size, value_size, headers_size, body
    cdef Py_ssize_t index, row
    max_timestamp_ms[0] = base_timestamp_ms
    for index in range(begin, end):
        row = row_at(packing, index)
        timestamp_ms = packing.timestamps_ms[row]
        max_timestamp_ms[0] = max(max_timestamp_ms[0], timestamp_ms)
        key_size = -1 if keys is None else keys.size(row)
        value_size = values.size(row)
        headers_size = 1 if headers is None else max(headers.size(row), 0)
        body = body_size(timestamp_ms - base_timestamp_ms, index - begin, key_size, value_size, headers_size)
        left -= varint_size(body) + body
        if left < 0:
            return False
        to = put_varint(to, body)
        to[0] = 0
        to = put_varint(to + 1, timestamp_ms - base_timestamp_ms)
        to = put_varint(to, index - begin)
        to = put_varint(to, key_size)
        if key_size > 0:
            memcpy(to, keys.at(row), key_size)
            to += key_size
        to = put_varint(to, value_size)
        if value_size > 0:
            memcpy(to, values.at(row), value_size)
            to += value_size
        if headers is None:
            to[0] = 0
        else:
            memcpy(to, headers.at(row), headers_size)
        to += headers_size
    return left == 0


def place_by_key(BinaryColumn keys not None, int64_t[::1] partitions not None, uint32_t partition_count):
    """Sets the partition of each row that has a key, and -1 as its partition."""
    cdef Py_ssize_t row
    cdef int64_t size
    assert partition_count > 0 and partitions.shape[0] == keys.count
    with nogil:
        for row in range(partitions.shape[0]):
            size = keys.size(row)
            if size >= 0 and partitions[row] == -1:
                partitions[row] = (murmur2_of(keys.at(row), size) & 0x7FFFFFFF) % partition_count


# --- iteration

@cython.final
cdef class RecordLoop:
    """The iterator of `for record in consumer`: klamm.consumer.sync_consumer.Consumer._next for the records of a run
    that has begun. All else is left to `_next`."""

    cdef Lock turn
    cdef object runs, unfinished, next_record, run, state, epoch, records

    def __init__(self, Lock turn not None, iteration, next_record):
        self.turn = turn
        self.runs = iteration.runs
        self.unfinished = iteration.unfinished
        self.next_record = next_record

    def __iter__(self):
        return self

    def __next__(self):
        record = self.next_of_run()
        if record is not None:
            return record
        if self.next_record is None:
            raise StopIteration
        record = self.next_record()
        if record is None:
            self.next_record = None
            raise StopIteration
        self.run = self.runs[0] if self.runs else None
        if self.run is not None:
            self.state, self.epoch, self.records = self.run[:3]
        return record

    cdef object next_of_run(self):
        """Returns the next record of the run, or None at its end, or if the run is over or in use by another thread."""
        if self.run is None or not self.turn.take(0):
            return None
        try:
            if not self.runs or self.runs[0] is not self.run:
                return None
            if self.state.position_epoch != self.epoch or self.state.paused:
                return None
            record = next(self.records, None)
            if record is not None:
                self.state.position = record.offset + 1
                self.state.leader_epoch = record.leader_epoch
                self.unfinished.in_hand = record
            return record
        finally:
            self.turn.drop()
