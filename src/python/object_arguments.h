// Reading the arguments of the ordinary Store's face: keys, addresses, buffers. What is of the
// wrong type is a TypeError, as it is there; what is wrong otherwise is the callers' to judge. The
// GIL is held throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/object_client.h"

namespace mooncake::python {

namespace nb = nanobind;

using Addresses = std::vector<uint64_t>;

// str (as UTF-8) or bytes.
std::string KeyOf(nb::handle key);
// Any sequence of keys but str and bytes.
std::vector<std::string> KeysOf(nb::handle keys, const char* name);
std::vector<std::string_view> ViewsOf(const std::vector<std::string>& keys);
// An int, or what says that it is one (__index__); not negative, at most 64 bits.
uint64_t AddressOf(nb::handle value, const char* name);
Addresses AddressesOf(nb::handle values, const char* name);
std::vector<Addresses> NestedAddressesOf(nb::handle values, const char* name);

// Memory of Python objects, held as long as this is.
class HeldBuffers {
 public:
  HeldBuffers() = default;
  ~HeldBuffers();
  HeldBuffers(const HeldBuffers&) = delete;
  HeldBuffers& operator=(const HeldBuffers&) = delete;

  // As the face's put has it: the first bytes, as many as the value has elements. TypeError: it has
  // no buffer. A piece without an address and with bytes: the elements do not lie behind each
  // other.
  client::ConstPiece AddValue(nb::handle value);
  // As its put_parts: all bytes. TypeError likewise; RuntimeError: not one-dimensional, or of items
  // that are no bytes.
  client::ConstPiece AddPart(nb::handle value);

 private:
  Py_buffer& Open(nb::handle value, int flags);

  std::vector<std::unique_ptr<Py_buffer>> buffers_;
};

}  // namespace mooncake::python
