// The ordinary Store for Python: batches of objects, conversion only. The face (mooncake.store)
// says what its callers are promised; here failures are its numbers (store_codes.h), one per entry.
//
// The GIL is released while the core works. Arguments of the wrong type are TypeErrors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/object_client.h"
#include "cluster/memory_lender.h"
#include "cluster/open_store.h"
#include "python/bindings.h"
#include "python/local_buffer.h"
#include "python/object_arguments.h"
#include "python/object_results.h"
#include "python/object_store.h"
#include "python/replicate_config.h"
#include "python/store_codes.h"
#include "python/store_error.h"

namespace mooncake::python {
namespace {

using client::ConstPiece;
using client::GetItem;
using client::ObjectClient;
using client::PutItem;
using client::ReadResult;

std::unique_ptr<ObjectStore> Open(const std::string& target, const std::string& tenant_id,
                                  int64_t retry_ms, uint64_t local_buffer_bytes, bool checksum,
                                  bool share_memory, int threads, uint64_t capacity_bytes,
                                  const std::string& host_id) {
  cluster::OpenOptions options;
  options.capacity_bytes = capacity_bytes;
  options.client.retry_ms = retry_ms;
  options.objects.tenant_id = tenant_id;
  options.objects.retry_ms = retry_ms;
  options.objects.checksum = checksum;
  options.objects.share_memory = share_memory;
  options.objects.threads = threads;
  options.objects.host_id = host_id;
  options.client.host_id = host_id;
  Result<std::unique_ptr<cluster::OpenedStore>> opened = [&] {
    nb::gil_scoped_release release;
    return cluster::OpenStore(target, options);
  }();
  return std::make_unique<ObjectStore>(TakeOrThrow(std::move(opened)), local_buffer_bytes);
}

// ---- writing ----

nb::list PutItems(ObjectStore& store, std::vector<PutItem> items, const ReplicateConfig& config,
                  bool upsert) {
  if (config.group_ids) {
    if (config.group_ids->size() != items.size()) return Same(items.size(), kInvalidParams);
    for (size_t i = 0; i < items.size(); ++i) items[i].group_id = (*config.group_ids)[i];
  }
  const client::PutOptions options = OptionsOf(config, upsert);
  std::vector<int> codes;
  {
    nb::gil_scoped_release release;
    const std::vector<client::PutResult> results = store.client().Put(items, options);
    LogFailures(upsert ? "upsert" : "put", results);
    for (const client::PutResult& result : results) codes.push_back(CodeOf(result));
  }
  return ListOf(codes);
}

nb::list PutValues(ObjectStore& store, nb::handle keys, nb::handle values,
                   const ReplicateConfig& config, bool upsert) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  HeldBuffers held;
  std::vector<PutItem> items;
  uint64_t bytes = 0;
  for (const nb::handle value : nb::borrow<nb::sequence>(values)) {
    if (items.size() == names.size()) return Same(names.size(), kInvalidParams);
    const ConstPiece piece = held.AddValue(value);
    bytes += piece.bytes;
    items.push_back({.key = names[items.size()], .pieces = {piece}});
  }
  if (items.size() != names.size()) return Same(names.size(), kInvalidParams);
  const Share share = Share::Of(store.buffer(), bytes);
  if (!share) return Same(names.size(), kInvalidParams);
  return PutItems(store, std::move(items), config, upsert);
}

int64_t PutParts(ObjectStore& store, nb::handle key, nb::handle parts,
                 const ReplicateConfig& config, bool upsert) {
  const std::string name = KeyOf(key);
  HeldBuffers held;
  PutItem item{.key = name, .pieces = {}};
  uint64_t bytes = 0;
  for (const nb::handle part : nb::borrow<nb::sequence>(parts)) {
    item.pieces.push_back(held.AddPart(part));
    bytes += item.pieces.back().bytes;
  }
  if (bytes == 0) return 0;
  const Share share = Share::Of(store.buffer(), bytes);
  if (!share) return kInvalidParams;
  return nb::cast<int64_t>(PutItems(store, {std::move(item)}, config, upsert)[0]);
}

ConstPiece Source(uint64_t address, uint64_t bytes) {
  return {reinterpret_cast<const void*>(address), bytes};
}

nb::list PutPointers(ObjectStore& store, nb::handle keys, nb::handle addresses, nb::handle sizes,
                     const ReplicateConfig& config, bool upsert) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const Addresses at = AddressesOf(addresses, "buffer_ptrs");
  const Addresses bytes = AddressesOf(sizes, "sizes");
  if (at.size() != names.size() || bytes.size() != names.size()) {
    return Same(names.size(), kInvalidParams);
  }
  std::vector<PutItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i] = {.key = names[i], .pieces = {Source(at[i], bytes[i])}};
  }
  return PutItems(store, std::move(items), config, upsert);
}

nb::list PutPieces(ObjectStore& store, nb::handle keys, nb::handle addresses, nb::handle sizes,
                   const ReplicateConfig& config, bool upsert) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const std::vector<Addresses> at = NestedAddressesOf(addresses, "all_buffer_ptrs");
  const std::vector<Addresses> bytes = NestedAddressesOf(sizes, "all_sizes");
  bool fits = at.size() == names.size() && bytes.size() == names.size();
  for (size_t i = 0; fits && i < names.size(); ++i) fits = at[i].size() == bytes[i].size();
  if (!fits) return Same(names.size(), kInvalidParams);
  std::vector<PutItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i].key = names[i];
    for (size_t j = 0; j < at[i].size(); ++j) {
      items[i].pieces.push_back(Source(at[i][j], bytes[i][j]));
    }
  }
  return PutItems(store, std::move(items), config, upsert);
}

// ---- reading ----

nb::list ReadCodes(const std::vector<ReadResult>& results) {
  std::vector<int64_t> codes;
  codes.reserve(results.size());
  for (const ReadResult& result : results) codes.push_back(CodeOf(result));
  return ListOf(codes);
}

// Bytes objects are made once their sizes are known, filled without the GIL, and shown to nobody
// before.
nb::list GetValues(ObjectStore& store, nb::handle keys) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<nb::object> values(names.size());
  std::vector<Share> shares(names.size());
  std::vector<ReadResult> results;
  {
    nb::gil_scoped_release release;
    results = store.client().GetSized(ViewsOf(names), [&](size_t i, uint64_t bytes) -> void* {
      shares[i] = {};
      shares[i] = Share::Of(store.buffer(), bytes);
      if (!shares[i]) return nullptr;
      nb::gil_scoped_acquire acquire;
      values[i] = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
      if (values[i].is_valid()) return PyBytes_AS_STRING(values[i].ptr());
      PyErr_Clear();
      return nullptr;
    });
    LogFailures("get", results);
  }
  nb::list list;
  for (size_t i = 0; i < results.size(); ++i) {
    list.append(results[i].status.ok() ? values[i] : nb::bytes("", 0));
  }
  return list;
}

nb::list GetHandles(ObjectStore& store, nb::handle keys) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<std::unique_ptr<BufferHandle>> handles(names.size());
  std::vector<ReadResult> results;
  {
    nb::gil_scoped_release release;
    results = store.client().GetSized(ViewsOf(names), [&](size_t i, uint64_t bytes) -> void* {
      handles[i] = nullptr;
      handles[i] = BufferHandle::Make(store.buffer(), bytes);
      return handles[i] == nullptr ? nullptr : handles[i]->data();
    });
    LogFailures("get_buffer", results);
  }
  nb::list list;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].status.ok()) {
      list.append(nb::cast(std::move(handles[i])));
    } else {
      list.append(nb::none());
    }
  }
  return list;
}

client::Piece Target(uint64_t address, uint64_t bytes) {
  return {reinterpret_cast<void*>(address), bytes};
}

std::vector<ReadResult> GetItems(ObjectStore& store, const std::vector<GetItem>& items) {
  nb::gil_scoped_release release;
  std::vector<ReadResult> results = store.client().Get(items);
  LogFailures("get", results);
  return results;
}

nb::list GetPointers(ObjectStore& store, nb::handle keys, nb::handle addresses, nb::handle sizes) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const Addresses at = AddressesOf(addresses, "buffer_ptrs");
  const Addresses bytes = AddressesOf(sizes, "sizes");
  if (at.size() != names.size() || bytes.size() != names.size()) {
    return Same(names.size(), kInvalidParams);
  }
  std::vector<GetItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i] = {.key = names[i], .pieces = {Target(at[i], bytes[i])}};
  }
  return ReadCodes(GetItems(store, items));
}

nb::list GetPieces(ObjectStore& store, nb::handle keys, nb::handle addresses, nb::handle sizes) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const std::vector<Addresses> at = NestedAddressesOf(addresses, "all_buffer_ptrs");
  const std::vector<Addresses> bytes = NestedAddressesOf(sizes, "all_sizes");
  bool fits = at.size() == names.size() && bytes.size() == names.size();
  for (size_t i = 0; fits && i < names.size(); ++i) fits = at[i].size() == bytes[i].size();
  if (!fits) return Same(names.size(), kInvalidParams);
  std::vector<GetItem> items(names.size());
  std::vector<uint64_t> room(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i] = {.key = names[i], .pieces = {}, .exact = true};
    for (size_t j = 0; j < at[i].size(); ++j) {
      items[i].pieces.push_back(Target(at[i][j], bytes[i][j]));
      room[i] += bytes[i][j];
    }
  }
  const std::vector<ReadResult> results = GetItems(store, items);
  std::vector<int64_t> codes;
  for (size_t i = 0; i < results.size(); ++i) {
    const bool too_much = results[i].status.code() == Code::kInvalidArgument &&
                          results[i].bytes > 0 && room[i] > results[i].bytes;
    codes.push_back(too_much ? int64_t{kTransferFail} : CodeOf(results[i]));
  }
  return ListOf(codes);
}

// All lists have one length; (key, offset in the object, target, bytes) each, and which object
// alone it may be (0: any).
nb::list GetRanges(ObjectStore& store, nb::handle keys, nb::handle offsets, nb::handle addresses,
                   nb::handle sizes, nb::handle object_ids) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const Addresses from = AddressesOf(offsets, "offsets");
  const Addresses at = AddressesOf(addresses, "buffer_ptrs");
  const Addresses bytes = AddressesOf(sizes, "sizes");
  const Addresses ids =
      object_ids.is_none() ? Addresses(names.size()) : AddressesOf(object_ids, "object_ids");
  if (from.size() != names.size() || at.size() != names.size() || bytes.size() != names.size() ||
      ids.size() != names.size()) {
    return Same(names.size(), kInvalidParams);
  }
  std::vector<client::RangeItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i] = {
        .key = names[i], .from = from[i], .target = Target(at[i], bytes[i]), .object_id = ids[i]};
  }
  std::vector<ReadResult> results;
  {
    nb::gil_scoped_release release;
    results = store.client().GetRanges(items);
    LogFailures("get_ranges", results);
  }
  return ReadCodes(results);
}

// ---- looking and removing ----

// `call` gives one Result per key; `value` its number.
template <class Call, class Value>
nb::list Numbers(nb::handle keys, const char* what, const Call& call, const Value& value) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<int64_t> numbers;
  {
    nb::gil_scoped_release release;
    const auto results = call(ViewsOf(names));
    std::vector<Status> statuses;
    for (const auto& result : results) {
      statuses.push_back(result.status());
      numbers.push_back(result.ok() ? static_cast<int64_t>(value(*result))
                                    : CodeOf(result.status()));
    }
    LogFailures(what, statuses);
  }
  return ListOf(numbers);
}

nb::list Exists(ObjectStore& store, nb::handle keys, bool renew) {
  return Numbers(
      keys, "is_exist",
      [&](const std::vector<std::string_view>& views) {
        return store.client().Exists(views, renew);
      },
      [](bool there) { return there ? 1 : 0; });
}

nb::list Sizes(ObjectStore& store, nb::handle keys, bool renew) {
  return Numbers(
      keys, "get_size",
      [&](const std::vector<std::string_view>& views) {
        return store.client().Sizes(views, renew);
      },
      [](uint64_t bytes) { return bytes; });
}

// Per key (object id, bytes, [(node id, slab, offset)], lease in ms), or a code.
nb::list Locate(ObjectStore& store, nb::handle keys, bool renew) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const auto results = [&] {
    nb::gil_scoped_release release;
    return store.client().Locate(ViewsOf(names), renew);
  }();
  nb::list list;
  for (const Result<client::ReadableObject>& result : results) {
    if (!result.ok()) {
      list.append(CodeOf(result.status()));
      continue;
    }
    nb::list replicas;
    for (const v1::SlabExtent& extent : result->replicas) {
      replicas.append(nb::make_tuple(extent.node_id(), extent.slab_id(), extent.offset()));
    }
    list.append(nb::make_tuple(result->object_id, result->bytes, replicas, result->lease_ms));
  }
  return list;
}

nb::list Remove(ObjectStore& store, nb::handle keys, bool force) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<int> codes;
  {
    nb::gil_scoped_release release;
    const std::vector<Status> results = store.client().Remove(ViewsOf(names), force);
    LogFailures("remove", results);
    for (const Status& status : results) codes.push_back(CodeOf(status));
  }
  return ListOf(codes);
}

int64_t Removed(const Result<ObjectClient::RemovedMany>& many) {
  if (many.ok()) return static_cast<int64_t>(many->removed);
  Log().warn("store: remove: {}", many.status().ToString());
  return CodeOf(many.status());
}

nb::object InfoOf(const v1::ObjectInfo& info) {
  nb::dict fields;
  fields["key"] = nb::bytes(info.key().data(), info.key().size());
  fields["object_id"] = info.object_id();
  fields["bytes"] = info.bytes();
  fields["data_type"] = static_cast<int>(info.data_type());
  fields["group_id"] = nb::bytes(info.group_id().data(), info.group_id().size());
  fields["hard_pin"] = info.hard_pin();
  fields["soft_pin_left_ms"] = info.soft_pin_left_ms();
  fields["lease_left_ms"] = info.lease_left_ms();
  fields["age_ms"] = info.age_ms();
  nb::list nodes;
  for (const std::string& node : info.node_ids()) nodes.append(node);
  fields["node_ids"] = nodes;
  return fields;
}

// StoreError, for the command line.
nb::list Describe(ObjectStore& store, nb::handle keys) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const auto results = [&] {
    nb::gil_scoped_release release;
    return store.client().Describe(ViewsOf(names));
  }();
  nb::list list;
  for (const Result<v1::ObjectInfo>& result : results) {
    list.append(result.ok() ? InfoOf(*result) : nb::int_(CodeOf(result.status())));
  }
  return list;
}

nb::list List(ObjectStore& store, nb::handle prefix) {
  const std::string begin = KeyOf(prefix);
  std::vector<v1::ObjectInfo> found;
  const Status listed = [&] {
    nb::gil_scoped_release release;
    return store.client().List(begin, [&found](const v1::ObjectInfo& info) {
      found.push_back(info);
      return true;
    });
  }();
  ThrowUnlessOk(listed);
  nb::list list;
  for (const v1::ObjectInfo& info : found) list.append(InfoOf(info));
  return list;
}

// 0: the Master answers.
int Ping(ObjectStore& store) {
  nb::gil_scoped_release release;
  return CodeOf(store.opened().DescribeCluster().status());
}

// ---- classes ----

int FillBuffer(PyObject* self, Py_buffer* view, int flags) {
  BufferHandle* handle = nb::inst_ptr<BufferHandle>(nb::handle(self));
  const int filled = PyBuffer_FillInfo(view, self, handle->data(),
                                       static_cast<Py_ssize_t>(handle->size()), 0, flags);
  // Signed bytes, as the face's callers have it.
  if (filled == 0 && (flags & PyBUF_FORMAT) != 0) view->format = const_cast<char*>("b");
  return filled;
}

void BindHandle(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&FillBuffer)},
                                {0, nullptr}};
  nb::class_<BufferHandle>(m, "BufferHandle", nb::type_slots(slots),
                           "An object that was read, in the store's local buffer.")
      .def("ptr",
           [](const BufferHandle& handle) { return reinterpret_cast<uint64_t>(handle.data()); })
      .def("size", &BufferHandle::size)
      .def("__len__", &BufferHandle::size);
}

}  // namespace

void BindObjects(nb::module_& m) {
  BindReplicateConfig(m);
  m.def(
      "buffer_address",
      [](nb::handle value) {
        HeldBuffers held;
        return reinterpret_cast<uint64_t>(held.AddPart(value).address);
      },
      nb::arg("buffer"));
  BindHandle(m);
  auto store = nb::class_<ObjectStore>(m, "ObjectStore");
  BindTenants(store);
  BindPutSessions(store);
  store
      .def(nb::new_(&Open), nb::arg("target"), nb::kw_only(), nb::arg("tenant_id") = "default",
           nb::arg("retry_ms") = 15'000, nb::arg("local_buffer_bytes") = 0,
           nb::arg("checksum") = true, nb::arg("share_memory") = true, nb::arg("threads") = 0,
           nb::arg("capacity_bytes") = 0, nb::arg("host_id") = "")
      .def("lend", &ObjectStore::Lend, nb::arg("master_address"), nb::arg("node_id"),
           nb::arg("capacity_bytes"), nb::arg("tcp_host") = "")
      .def("unlend", &ObjectStore::Unlend, nb::arg("node_id"))
      .def("ping", &Ping)
      .def("local_buffer_free", [](ObjectStore& store) { return store.buffer()->free_bytes(); })
      .def("handle_bytes_from",
           [](ObjectStore& store, uint64_t address) {
             return store.buffer()->HandleBytesFrom(address);
           })
      .def("put_values", &PutValues)
      .def("put_parts", &PutParts)
      .def("put_pointers", &PutPointers)
      .def("put_pieces", &PutPieces)
      .def("get_values", &GetValues)
      .def("get_handles", &GetHandles)
      .def("get_pointers", &GetPointers)
      .def("get_pieces", &GetPieces)
      .def("get_ranges", &GetRanges, nb::arg("keys"), nb::arg("offsets"), nb::arg("addresses"),
           nb::arg("sizes"), nb::arg("object_ids") = nb::none())
      .def("exists", &Exists, nb::arg("keys"), nb::arg("renew") = true)
      .def("sizes", &Sizes, nb::arg("keys"), nb::arg("renew") = true)
      .def("locate", &Locate, nb::arg("keys"), nb::arg("renew") = true)
      .def("describe", &Describe)
      .def("list", &List)
      .def("remove", &Remove, nb::arg("keys"), nb::arg("force") = false)
      .def("remove_by_regex",
           [](ObjectStore& store, nb::handle pattern, bool force) {
             const std::string text = KeyOf(pattern);
             nb::gil_scoped_release release;
             return Removed(store.client().RemoveByRegex(text, force));
           })
      .def("remove_all", [](ObjectStore& store, bool force) {
        nb::gil_scoped_release release;
        return Removed(store.client().RemoveAll(force));
      });
}

}  // namespace mooncake::python
