// Objects that Python writes part by part (client/put_sessions.h): conversion only, as in
// bind_objects.cc.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "python/object_arguments.h"
#include "python/object_results.h"
#include "python/object_store.h"
#include "python/replicate_config.h"
#include "python/store_codes.h"

namespace mooncake::python {
namespace {

using client::PutResult;

// `config` is of puts of this many keys.
nb::list Start(ObjectStore& store, nb::handle keys, nb::handle sizes,
               const ReplicateConfig& config) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const Addresses bytes = AddressesOf(sizes, "sizes");
  if (bytes.size() != names.size()) return Same(names.size(), kInvalidParams);
  if (config.group_ids && config.group_ids->size() != names.size()) {
    return Same(names.size(), kInvalidParams);
  }
  std::vector<client::OpenItem> items(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    items[i] = {.key = names[i], .bytes = bytes[i]};
    if (config.group_ids) items[i].group_id = (*config.group_ids)[i];
  }
  const client::PutOptions options = OptionsOf(config, /*upsert=*/false);
  std::vector<int> codes;
  {
    nb::gil_scoped_release release;
    const std::vector<PutResult> results = store.client().StartPuts(items, options);
    LogFailures("batch_put_session_start", results);
    for (const PutResult& result : results) codes.push_back(CodeOfStart(result));
  }
  return ListOf(codes);
}

// Per key the bytes written, or a code.
nb::list Write(ObjectStore& store, nb::handle keys, nb::handle addresses, nb::handle sizes,
               nb::handle offsets) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  const std::vector<Addresses> from = NestedAddressesOf(addresses, "all_buffer_ptrs");
  const std::vector<Addresses> bytes = NestedAddressesOf(sizes, "all_sizes");
  const std::vector<Addresses> at = NestedAddressesOf(offsets, "all_dst_offsets");
  if (from.size() != names.size() || bytes.size() != names.size() || at.size() != names.size()) {
    return Same(names.size(), kInvalidParams);
  }
  std::vector<int64_t> answers(names.size(), kInvalidParams);
  std::vector<client::PartsItem> items;
  std::vector<size_t> owners;
  for (size_t i = 0; i < names.size(); ++i) {
    if (from[i].size() != bytes[i].size() || from[i].size() != at[i].size()) continue;
    client::PartsItem item{.key = names[i], .parts = {}};
    for (size_t k = 0; k < at[i].size(); ++k) {
      const void* source = reinterpret_cast<const void*>(from[i][k]);
      item.parts.push_back({.at = at[i][k], .source = {source, bytes[i][k]}});
    }
    items.push_back(std::move(item));
    owners.push_back(i);
  }
  {
    nb::gil_scoped_release release;
    const std::vector<PutResult> results = store.client().WriteParts(items);
    LogFailures("batch_put_from_multi_buffer_ranges", results);
    for (size_t n = 0; n < results.size(); ++n) {
      int64_t written = CodeOf(results[n]);
      if (results[n].status.ok()) {
        for (const client::PutPart& part : items[n].parts) {
          written += static_cast<int64_t>(part.source.bytes);
        }
      }
      answers[owners[n]] = written;
    }
  }
  return ListOf(answers);
}

nb::list End(ObjectStore& store, nb::handle keys) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<int> codes;
  {
    nb::gil_scoped_release release;
    const std::vector<PutResult> results = store.client().EndPuts(ViewsOf(names));
    LogFailures("batch_put_session_end", results);
    for (const PutResult& result : results) codes.push_back(CodeOf(result));
  }
  return ListOf(codes);
}

nb::list Revoke(ObjectStore& store, nb::handle keys) {
  const std::vector<std::string> names = KeysOf(keys, "keys");
  std::vector<int> codes;
  {
    nb::gil_scoped_release release;
    const std::vector<Status> results = store.client().RevokePuts(ViewsOf(names));
    LogFailures("batch_put_session_revoke", results);
    for (const Status& status : results) codes.push_back(CodeOf(status));
  }
  return ListOf(codes);
}

}  // namespace

void BindPutSessions(nb::class_<ObjectStore>& store) {
  store.def("put_session_start", &Start)
      .def("put_session_write", &Write)
      .def("put_session_end", &End)
      .def("put_session_revoke", &Revoke);
}

}  // namespace mooncake::python
