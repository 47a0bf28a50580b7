// Strict reading of Python values, as the contracts demand it: exact str and int (no subclasses, no
// bool, no numpy scalars), containers that are sequences, integers that fit in 64 bits.
//
// Every refusal is a ValueError that names the field. The GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "manifest/types.h"

namespace mooncake::python {

namespace nb = nanobind;

// Attribute names of the dataclasses, interned once. One list (attribute_names.inc), so that a
// misspelt name does not compile.
struct Names {
#define MOONCAKE_NAME(name) PyObject* name;
#include "python/attribute_names.inc"
#undef MOONCAKE_NAME
  PyObject* namespace_name;  // "namespace", a keyword of C++
};
const Names& N();

nb::object Get(nb::handle object, PyObject* name);
// Into a frozen dataclass; skipped when it is the same object already.
void Set(nb::handle object, PyObject* name, nb::handle value);

// The first and only assignment of a field of a new object.
void Init(nb::handle object, PyObject* name, nb::handle value);

// An argument that may be anything, None too: the function's own reading judges it.
inline auto AnyArg(const char* name) { return nb::arg(name).none(); }

// A class of the Python face, imported when first needed (the face imports this module first).
class PyClass {
 public:
  constexpr PyClass(const char* module, const char* name) : module_(module), name_(name) {}

  nb::handle type();
  bool IsInstance(nb::handle object);
  const char* name() const { return name_; }
  // A new instance without its constructor having run.
  nb::object Make();

 private:
  const char* module_;
  const char* name_;
  PyObject* type_ = nullptr;
};

// The UTF-8 of a str, which must outlive it; UnicodeEncodeError (a ValueError) for lone surrogates.
std::string_view Utf8(nb::handle text);
std::string Text(nb::handle value, const char* name);
std::optional<std::string> OptionalText(nb::handle value, const char* name);
int64_t Int(nb::handle value, std::string_view name, int64_t min);
std::optional<int64_t> OptionalInt(nb::handle value, const char* name, int64_t min);
uint64_t U64(nb::handle value, std::string_view name, uint64_t min);

// `value` as an exact tuple; ValueError "<name> <complaint>" when it is no sequence, or is text or
// bytes.
nb::tuple AsTuple(nb::handle value, std::string_view name, std::string_view complaint);
// INTS of the contract: AsTuple, then every item. Sets *tuple (when asked) to what to store.
manifest::Extents Ints(nb::handle value, const char* name, int64_t min, nb::tuple* tuple = nullptr);
// ITEMS of the contract.
nb::tuple Items(nb::handle value, std::string_view name, PyClass& item_class);

nb::tuple ToTuple(const manifest::Extents& values);
nb::str ToStr(std::string_view text);
nb::object ToInt(const std::optional<int64_t>& value);  // None when absent

}  // namespace mooncake::python
