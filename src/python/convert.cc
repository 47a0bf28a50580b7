#include "python/convert.h"

#include <fmt/format.h>

#include "python/errors.h"

namespace mooncake::python {

const Names& N() {
  static const Names names = [] {
    Names made;
#define MOONCAKE_NAME(name) made.name = PyUnicode_InternFromString(#name);
#include "python/attribute_names.inc"
#undef MOONCAKE_NAME
    made.namespace_name = PyUnicode_InternFromString("namespace");
    return made;
  }();
  return names;
}

nb::object Get(nb::handle object, PyObject* name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) throw nb::python_error();
  return nb::steal(value);
}

void Set(nb::handle object, PyObject* name, nb::handle value) {
  if (Get(object, name).is(value)) return;
  // What object.__setattr__ does: frozen classes refuse the ordinary way.
  if (PyObject_GenericSetAttr(object.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

void Init(nb::handle object, PyObject* name, nb::handle value) {
  if (PyObject_GenericSetAttr(object.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

nb::handle PyClass::type() {
  if (type_ == nullptr) {
    type_ = nb::object(nb::module_::import_(module_).attr(name_)).release().ptr();
  }
  return type_;
}

bool PyClass::IsInstance(nb::handle object) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == type().ptr()) return true;
  const int answer = PyObject_IsInstance(object.ptr(), type_);
  if (answer < 0) throw nb::python_error();
  return answer == 1;
}

nb::object PyClass::Make() {
  auto* type_object = reinterpret_cast<PyTypeObject*>(type().ptr());
  PyObject* made = type_object->tp_alloc(type_object, 0);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

std::string_view Utf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(size)};
}

std::string Text(nb::handle value, const char* name) {
  if (!PyUnicode_CheckExact(value.ptr()) || PyUnicode_GET_LENGTH(value.ptr()) == 0) {
    Refuse(fmt::format("{} must be a non-empty string", name));
  }
  return std::string(Utf8(value));
}

std::optional<std::string> OptionalText(nb::handle value, const char* name) {
  if (value.is_none()) return std::nullopt;
  return Text(value, name);
}

namespace {

std::string Shown(nb::handle value) { return nb::str(value).c_str(); }

void RequireExactInt(nb::handle value, std::string_view name) {
  if (!PyLong_CheckExact(value.ptr())) Refuse(fmt::format("{} must be an integer", name));
}

}  // namespace

int64_t Int(nb::handle value, std::string_view name, int64_t min) {
  RequireExactInt(value, name);
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow > 0) {
    Refuse(fmt::format("{} must fit in a signed 64-bit integer, got {}", name, Shown(value)));
  }
  if (overflow < 0 || number < min) {
    Refuse(fmt::format("{} must be at least {}, got {}", name, min, Shown(value)));
  }
  return number;
}

std::optional<int64_t> OptionalInt(nb::handle value, const char* name, int64_t min) {
  if (value.is_none()) return std::nullopt;
  return Int(value, name, min);
}

uint64_t U64(nb::handle value, std::string_view name, uint64_t min) {
  RequireExactInt(value, name);
  int overflow = 0;
  const int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow < 0 || (overflow == 0 && number < 0)) {
    Refuse(fmt::format("{} must be at least {}, got {}", name, min, Shown(value)));
  }
  uint64_t unsigned_number = static_cast<uint64_t>(number);
  if (overflow > 0) {
    unsigned_number = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      Refuse(fmt::format("{} must fit in an unsigned 64-bit integer, got {}", name, Shown(value)));
    }
  }
  if (unsigned_number < min) {
    Refuse(fmt::format("{} must be at least {}, got {}", name, min, unsigned_number));
  }
  return unsigned_number;
}

nb::tuple AsTuple(nb::handle value, std::string_view name, std::string_view complaint) {
  PyObject* object = value.ptr();
  if (PyTuple_CheckExact(object)) return nb::borrow<nb::tuple>(value);
  if (!PyList_CheckExact(object)) {
    static PyClass sequence("collections.abc", "Sequence");
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object) ||
        !sequence.IsInstance(value)) {
      Refuse(fmt::format("{} {}", name, complaint));
    }
  }
  PyObject* tuple = PySequence_Tuple(object);
  if (tuple == nullptr) throw nb::python_error();
  return nb::steal<nb::tuple>(tuple);
}

manifest::Extents Ints(nb::handle value, const char* name, int64_t min, nb::tuple* tuple) {
  nb::tuple items = AsTuple(value, name, "must contain integers");
  manifest::Extents numbers;
  numbers.reserve(items.size());
  for (nb::handle item : items) numbers.push_back(Int(item, name, min));
  if (tuple != nullptr) *tuple = std::move(items);
  return numbers;
}

nb::tuple Items(nb::handle value, std::string_view name, PyClass& item_class) {
  nb::tuple items = AsTuple(value, name, "must be a sequence");
  for (nb::handle item : items) {
    if (item_class.IsInstance(item)) continue;
    Refuse(fmt::format("{} must contain {}", name, item_class.name()));
  }
  return items;
}

nb::tuple ToTuple(const manifest::Extents& values) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  if (tuple == nullptr) throw nb::python_error();
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  }
  return nb::steal<nb::tuple>(tuple);
}

nb::str ToStr(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::object ToInt(const std::optional<int64_t>& value) {
  if (!value) return nb::none();
  return nb::int_(*value);
}

}  // namespace mooncake::python
