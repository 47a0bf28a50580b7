#include "python/object_arguments.h"

#include <memory>
#include <utility>

#include "python/convert.h"

namespace mooncake::python {
namespace {

[[noreturn]] void WrongType(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

[[noreturn]] void WrongType(const char* name, const char* expected, nb::handle got) {
  WrongType(std::string(name) + ": expected " + expected + ", got " + Py_TYPE(got.ptr())->tp_name);
}

// The items of any sequence that is no text, as a tuple or list of its own.
nb::object ItemsOf(nb::handle values, const char* name) {
  PyObject* object = values.ptr();
  const bool text = PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object);
  if (text || !PySequence_Check(object)) WrongType(name, "a sequence", values);
  PyObject* items = PySequence_Tuple(object);
  if (items == nullptr) throw nb::python_error();
  return nb::steal(items);
}

template <class Read>
auto ReadAll(nb::handle values, const char* name, const Read& read) {
  const nb::object items = ItemsOf(values, name);
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  std::vector<decltype(read(nb::handle()))> all;
  all.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    all.push_back(read(nb::handle(PyTuple_GET_ITEM(items.ptr(), i))));
  }
  return all;
}

}  // namespace

std::string KeyOf(nb::handle key) {
  if (PyBytes_Check(key.ptr())) {
    return {PyBytes_AS_STRING(key.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(key.ptr()))};
  }
  if (!PyUnicode_Check(key.ptr())) WrongType("key", "str or bytes", key);
  return std::string(Utf8(key));
}

std::vector<std::string> KeysOf(nb::handle keys, const char* name) {
  return ReadAll(keys, name, [](nb::handle key) { return KeyOf(key); });
}

std::vector<std::string_view> ViewsOf(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

uint64_t AddressOf(nb::handle value, const char* name) {
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    WrongType(name, "an int", value);
  }
  const unsigned long long read = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    WrongType(std::string(name) + ": expected 0 to 2^64-1, got " +
              nb::cast<std::string>(nb::str(value)));
  }
  return read;
}

Addresses AddressesOf(nb::handle values, const char* name) {
  return ReadAll(values, name, [name](nb::handle value) { return AddressOf(value, name); });
}

std::vector<Addresses> NestedAddressesOf(nb::handle values, const char* name) {
  return ReadAll(values, name, [name](nb::handle value) { return AddressesOf(value, name); });
}

HeldBuffers::~HeldBuffers() {
  for (const auto& buffer : buffers_) PyBuffer_Release(buffer.get());
}

Py_buffer& HeldBuffers::Open(nb::handle value, int flags) {
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(value.ptr(), buffer.get(), flags) != 0) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
    PyErr_Clear();
    WrongType("value", "an object with a buffer that can be read", value);
  }
  buffers_.push_back(std::move(buffer));
  return *buffers_.back();
}

client::ConstPiece HeldBuffers::AddValue(nb::handle value) {
  const Py_buffer& buffer = Open(value, PyBUF_STRIDES | PyBUF_FORMAT);
  uint64_t elements = 1;
  // Bytes from the first element to the end of the furthest one behind it.
  uint64_t extent = static_cast<uint64_t>(buffer.itemsize);
  for (int i = 0; i < buffer.ndim; ++i) {
    elements *= static_cast<uint64_t>(buffer.shape[i]);
    if (buffer.shape[i] > 1 && buffer.strides[i] > 0) {
      extent +=
          static_cast<uint64_t>(buffer.shape[i] - 1) * static_cast<uint64_t>(buffer.strides[i]);
    }
  }
  if (elements > extent) return {nullptr, elements};
  return {buffer.buf, elements};
}

client::ConstPiece HeldBuffers::AddPart(nb::handle value) {
  const Py_buffer& buffer = Open(value, PyBUF_STRIDES | PyBUF_FORMAT);
  const bool dense =
      buffer.ndim == 1 && buffer.itemsize == 1 && (buffer.shape[0] < 2 || buffer.strides[0] == 1);
  if (!dense) {
    const std::string message =
        "a part must be one-dimensional, contiguous and of single bytes; got " +
        std::to_string(buffer.ndim) + " dimensions of items of " + std::to_string(buffer.itemsize) +
        " bytes";
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
    throw nb::python_error();
  }
  return {buffer.buf, static_cast<uint64_t>(buffer.len)};
}

}  // namespace mooncake::python
