// The store's client for Python: StoreClient and Importer, conversion only.
//
// Failures of the store are mooncake._core.StoreError(code name, message); the face turns them into
// its own classes. The GIL is released while the core works and taken back for callbacks, which
// also give Ctrl-C its chance: a pending signal cancels the operation and its exception goes on.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/log.h"
#include "client/digests.h"
#include "client/store_client.h"
#include "cluster/doctor.h"
#include "cluster/open_store.h"
#include "master/log_text.h"
#include "python/bindings.h"
#include "python/handles.h"
#include "python/store_error.h"
#include "rpc/token_table.h"
#include "transfer/copy_engine.h"

namespace mooncake::python {

namespace {
PyObject* store_error = nullptr;
}  // namespace

void ThrowStoreError(const Status& status) {
  // A signal handler's exception that cancelled the operation matters more than the cancellation.
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const nb::object args = nb::make_tuple(
      nb::str(std::string(CodeName(status.code())).c_str()),
      nb::steal(PyUnicode_DecodeUTF8(status.message().data(),
                                     static_cast<Py_ssize_t>(status.message().size()), "replace")));
  PyErr_SetObject(store_error, args.ptr());
  throw nb::python_error();
}

namespace {

using client::Importer;
using client::StoreClient;

// (namespace, resource_id, revision, weight_generation, tenant_id)
using IdentityTuple = std::tuple<std::string, std::string, std::string, uint64_t, std::string>;
// (preferred residency, mixed_hot_ratio, migration mode), lower-case names
using PolicyTuple = std::tuple<std::string, double, std::string>;

// Runs `work` without the GIL.
template <class Work>
auto WithoutGil(Work work) {
  nb::gil_scoped_release release;
  return work();
}

// True to go on. Called without the GIL, on the thread that holds the Python frame.
bool NoSignalPending() {
  nb::gil_scoped_acquire acquire;
  return PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0;
}

model::WeightIdentity IdentityOf(const IdentityTuple& fields) {
  const auto& [name_space, resource_id, revision, generation, tenant_id] = fields;
  return {tenant_id, name_space, resource_id, revision, model::WeightGeneration(generation)};
}

std::string Lower(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return lower;
}

// The value in [1, last] of an enum whose lower-case name is `name`.
template <class Enum>
Enum ByName(std::string_view name, int last, const char* field) {
  for (int i = 1; i <= last; ++i) {
    if (Lower(model::Name(static_cast<Enum>(i))) == name) return static_cast<Enum>(i);
  }
  ThrowStoreError(
      InvalidArgument(std::string(field) + " has no value \"" + std::string(name) + "\""));
}

std::optional<model::StoragePolicy> PolicyOf(const std::optional<PolicyTuple>& fields) {
  if (!fields.has_value()) return std::nullopt;
  const auto& [preferred, ratio, mode] = *fields;
  model::StoragePolicy policy;
  policy.preferred_residency =
      ByName<model::Residency>(preferred, model::kResidencyMax, "preferred_residency");
  policy.mixed_hot_ratio = ratio;
  policy.migration_mode =
      ByName<model::MigrationMode>(mode, model::kMigrationModeMax, "migration_mode");
  return policy;
}

// "" for a digest that is not known yet (all zero).
std::string HexOrEmpty(const Sha256Digest& digest) {
  return digest == Sha256Digest{} ? std::string() : ToHex(digest);
}

nb::dict MetadataFields(const model::RevisionMetadata& metadata) {
  nb::dict fields;
  const model::WeightIdentity& identity = metadata.identity;
  fields["identity"] = nb::make_tuple(identity.name_space, identity.resource_id, identity.revision,
                                      identity.weight_generation.value, identity.tenant_id);
  fields["availability"] = Lower(model::Name(metadata.availability));
  fields["observed_residency"] = Lower(model::Name(metadata.observed_residency));
  fields["policy"] = nb::make_tuple(Lower(model::Name(metadata.policy.preferred_residency)),
                                    metadata.policy.mixed_hot_ratio,
                                    Lower(model::Name(metadata.policy.migration_mode)));
  fields["metadata_generation"] = metadata.metadata_generation.value;
  fields["group_id"] = metadata.group_id;
  fields["manifest_key"] = metadata.manifest_key;
  fields["manifest_sha256"] = HexOrEmpty(metadata.manifest_sha256);
  fields["payload_keys_sha256"] = HexOrEmpty(metadata.payload_keys_sha256);
  fields["payload_count"] = metadata.payload_count;
  fields["logical_payload_bytes"] = metadata.logical_payload_bytes;
  fields["affinity_count"] = metadata.affinity_count;
  fields["affinity_sha256"] = HexOrEmpty(metadata.affinity_sha256);
  fields["digests_root_sha256"] = HexOrEmpty(metadata.digests_root_sha256);
  fields["placement_id"] = metadata.placement_id;
  fields["created_at"] = metadata.created_at;
  fields["observed_hot_ratio"] = metadata.observed_hot_ratio;
  fields["active_lease_count"] = metadata.active_lease_count;
  fields["last_access_ms"] = metadata.last_access_ms;
  fields["state_reason"] = metadata.state_reason;
  return fields;
}

// (metadata, physical bytes)
nb::tuple ViewFields(const client::RevisionView& view) {
  nb::dict metadata = MetadataFields(view.metadata);
  if (view.operation_id.has_value()) metadata["operation_id"] = *view.operation_id;
  return nb::make_tuple(metadata, view.physical_bytes);
}

client::WaitOptions WaitFor(double timeout_seconds) {
  client::WaitOptions wait;
  wait.timeout_ms = timeout_seconds < 0 ? -1 : static_cast<int64_t>(timeout_seconds * 1000);
  wait.keep_waiting = NoSignalPending;
  return wait;
}

// A client and what it stands on (an embedded Master and node, or channels).
class PyStoreClient {
 public:
  explicit PyStoreClient(std::unique_ptr<cluster::OpenedStore> opened)
      : opened_(std::move(opened)) {}

  // Ending an embedded store waits for its threads, which may log but never call Python.
  ~PyStoreClient() { Close(); }

  cluster::OpenedStore& opened() {
    if (opened_ == nullptr) ThrowStoreError(Unavailable("this WeightStore is closed"));
    return *opened_;
  }
  StoreClient& client() { return opened().client(); }

  void Close() {
    if (opened_ == nullptr) return;
    std::unique_ptr<cluster::OpenedStore> closing = std::move(opened_);
    WithoutGil([&] { closing.reset(); });
  }

 private:
  std::unique_ptr<cluster::OpenedStore> opened_;
};

std::unique_ptr<PyStoreClient> Open(const std::string& target,
                                    const std::optional<PolicyTuple>& default_policy, int threads,
                                    uint64_t lease_ttl_ms, uint64_t import_ttl_ms, int64_t retry_ms,
                                    uint64_t capacity_bytes, nb::object step_observer,
                                    std::string token, std::string token_file, std::string tls_ca,
                                    std::string tls_cert, std::string tls_key) {
  cluster::OpenOptions options;
  options.client.default_policy = PolicyOf(default_policy);
  options.client.threads = threads;
  options.client.lease_ttl_ms = lease_ttl_ms;
  options.client.import_ttl_ms = import_ttl_ms;
  options.client.retry_ms = retry_ms;
  if (capacity_bytes != 0) options.capacity_bytes = capacity_bytes;
  options.credentials = {std::move(token), std::move(token_file), std::move(tls_ca),
                         std::move(tls_cert), std::move(tls_key)};
  if (!step_observer.is_none()) {
    // Shared, so that copies of the function object never touch the count without the GIL.
    auto observer =
        std::shared_ptr<nb::object>(new nb::object(std::move(step_observer)), [](nb::object* held) {
          nb::gil_scoped_acquire acquire;
          delete held;
        });
    options.client.step_observer = [observer](std::string_view step) -> Status {
      nb::gil_scoped_acquire acquire;
      try {
        (*observer)(nb::str(step.data(), step.size()));
      } catch (const nb::python_error& error) {
        return Cancelled("step observer: " + std::string(error.what()));
      }
      return OkStatus();
    };
  }
  return std::make_unique<PyStoreClient>(
      TakeOrThrow(WithoutGil([&] { return cluster::OpenStore(target, options); })));
}

reshard::ReplicaScope ScopeByName(const std::string& name) {
  if (name == "none") return reshard::ReplicaScope::kNone;
  if (name == "selected") return reshard::ReplicaScope::kSelected;
  if (name == "all") return reshard::ReplicaScope::kAll;
  ThrowStoreError(InvalidArgument("verify_replicas has no value \"" + name + "\""));
}

std::unique_ptr<Importer> BeginImport(PyStoreClient& store, const IdentityTuple& identity,
                                      nb::handle placement,
                                      const std::vector<std::string>& participants,
                                      const std::optional<PolicyTuple>& policy,
                                      const std::string& verify_replicas) {
  client::ImportRequest request;
  request.identity = IdentityOf(identity);
  request.placement = PlacementOf(placement, "placement");
  request.participants = participants;
  request.policy = PolicyOf(policy);
  request.keep_waiting = NoSignalPending;
  request.verify_replicas = ScopeByName(verify_replicas);
  StoreClient& client = store.client();
  return TakeOrThrow(WithoutGil([&] { return client.BeginImport(request); }));
}

void PutFragment(Importer& importer, const std::string& participant, const std::string& fragment_id,
                 uint64_t address, uint64_t nbytes, std::vector<int64_t> strides_bytes) {
  client::FragmentSource source;
  source.address = reinterpret_cast<const void*>(address);
  source.nbytes = nbytes;
  source.strides_bytes = std::move(strides_bytes);
  ThrowUnlessOk(WithoutGil([&] { return importer.PutFragment(participant, fragment_id, source); }));
}

nb::dict Finish(Importer& importer, double timeout_seconds) {
  const client::ImportReport report =
      TakeOrThrow(WithoutGil([&] { return importer.Finish(WaitFor(timeout_seconds)); }));
  nb::dict stages;
  stages["copy"] = report.seconds_copy;
  stages["commit"] = report.seconds_commit;
  nb::dict fields;
  fields["metadata"] = MetadataFields(report.metadata);
  fields["already_published"] = report.already_published;
  fields["bytes_uploaded"] = report.bytes_uploaded;
  fields["bytes_compared"] = report.bytes_compared;
  fields["stage_seconds"] = stages;
  return fields;
}

nb::dict ReportFields(const client::LoadReport& report) {
  nb::dict stages;
  stages["resolve"] = report.seconds_resolve;
  stages["plan"] = report.seconds_plan;
  stages["map"] = report.seconds_map;
  stages["copy"] = report.seconds_copy;
  stages["total"] = report.seconds_total;
  nb::dict fields;
  fields["tensors"] = report.tensors;
  fields["regions"] = report.regions;
  fields["copies"] = report.copies;
  fields["objects"] = report.objects;
  fields["bytes_needed"] = report.bytes_needed;
  fields["bytes_moved"] = report.bytes_moved;
  fields["bytes_verified"] = report.bytes_verified;
  fields["plan_reused"] = report.plan_reused;
  fields["stage_seconds"] = stages;
  return fields;
}

nb::tuple Load(PyStoreClient& store, const IdentityTuple& identity, nb::handle placement,
               const nb::sequence& bindings, bool verify, int threads, nb::callable progress) {
  std::vector<client::LoadTarget> targets;
  const manifest::PlacementPtr target_placement = PlacementOf(placement, "target_placement");
  for (const nb::handle binding : bindings) {
    targets.push_back({target_placement, RuntimeBindingOf(binding, "target_binding")});
  }
  client::LoadOptions options;
  options.verify = verify;
  options.threads = threads;
  options.progress = [&progress](const client::LoadProgress& at) {
    nb::gil_scoped_acquire acquire;
    // Called again before the load has stopped: no Python may run on a pending exception.
    if (PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0) return false;
    try {
      return nb::cast<bool>(progress(at.bytes_done, at.bytes_total));
    } catch (nb::python_error& error) {
      error.restore();  // of a signal on the way into the callback; the core knows no exceptions
      return false;
    }
  };
  StoreClient& client = store.client();
  const client::LoadReport report =
      TakeOrThrow(WithoutGil([&] { return client.Load(IdentityOf(identity), targets, options); }));
  return nb::make_tuple(ReportFields(report), ToPython(report.manifest));
}

nb::tuple List(PyStoreClient& store, std::string tenant_id, std::string name_space,
               std::string resource_id, const std::vector<std::string>& availability,
               uint32_t page_size, std::string page_token) {
  client::ListRequest request;
  request.tenant_id = std::move(tenant_id);
  request.namespace_name = std::move(name_space);
  request.resource_id = std::move(resource_id);
  for (const std::string& state : availability) {
    request.availability.push_back(
        ByName<model::Availability>(state, model::kAvailabilityMax, "availability"));
  }
  request.page_size = page_size;
  request.page_token = std::move(page_token);
  StoreClient& client = store.client();
  const client::ListPage page = TakeOrThrow(WithoutGil([&] { return client.List(request); }));
  nb::list revisions;
  for (const client::RevisionView& view : page.revisions) revisions.append(ViewFields(view));
  return nb::make_tuple(revisions, page.next_page_token);
}

nb::dict Remove(PyStoreClient& store, const IdentityTuple& identity,
                std::optional<uint64_t> expected_metadata_generation, double timeout_seconds) {
  client::RemoveOptions options;
  options.expected_metadata_generation = expected_metadata_generation;
  options.wait = WaitFor(timeout_seconds);
  StoreClient& client = store.client();
  return MetadataFields(
      TakeOrThrow(WithoutGil([&] { return client.Remove(IdentityOf(identity), options); })));
}

void CopyStrided(uint64_t target, uint64_t source, uint64_t inner_bytes,
                 const std::vector<uint64_t>& counts, const std::vector<int64_t>& target_strides,
                 const std::vector<int64_t>& source_strides, int threads) {
  const size_t loops = counts.size();
  if (loops > transfer::kLoopsMax || target_strides.size() != loops ||
      source_strides.size() != loops) {
    ThrowUnlessOk(InvalidArgument("counts and strides must have one length, at most " +
                                  std::to_string(transfer::kLoopsMax)));
  }
  if (threads < 1 || threads > client::kThreadsMax) {
    ThrowUnlessOk(InvalidArgument("threads must be 1 to " + std::to_string(client::kThreadsMax) +
                                  ", got " + std::to_string(threads)));
  }
  transfer::StridedCopy copy;
  copy.source = reinterpret_cast<const std::byte*>(source);
  copy.target = reinterpret_cast<std::byte*>(target);
  copy.inner_bytes = inner_bytes;
  copy.loops = static_cast<int>(loops);
  std::copy(counts.begin(), counts.end(), copy.counts.begin());
  std::copy(target_strides.begin(), target_strides.end(), copy.target_strides.begin());
  std::copy(source_strides.begin(), source_strides.end(), copy.source_strides.begin());
  ThrowUnlessOk(WithoutGil([&] {
    transfer::CopyEngine engine({.threads = threads});
    return engine.Copy({&copy, 1});
  }));
}

void BindTokens(nb::module_& m) {
  // [(name, role, tenant or None)] of a Master's token file
  m.def(
      "parse_tokens",
      [](const std::string& text) {
        nb::list rows;
        for (const rpc::Caller& caller : TakeOrThrow(rpc::TokenTable::Parse(text)).callers()) {
          rows.append(nb::make_tuple(caller.name, std::string(rpc::Name(caller.role)),
                                     caller.tenant_id ? nb::cast(*caller.tenant_id) : nb::none()));
        }
        return rows;
      },
      nb::arg("text"));
}

// What tools and benchmarks need besides the store's own face.
void BindTools(nb::module_& m) {
  m.def(
      "read_log",
      [](const std::string& path, uint64_t first, uint64_t limit) {
        nb::list rows;
        for (const master::LogBatchText& batch :
             TakeOrThrow(WithoutGil([&] { return master::ReadLogText(path, first, limit); }))) {
          rows.append(nb::make_tuple(batch.sequence, batch.term, batch.bytes, batch.json));
        }
        return rows;
      },
      nb::arg("path"), nb::arg("first") = 1, nb::arg("limit") = 0);
  m.def(
      "read_snapshot",
      [](const std::string& path) {
        nb::list rows;
        for (const master::SnapshotRecordText& record :
             TakeOrThrow(WithoutGil([&] { return master::ReadSnapshotText(path); }))) {
          rows.append(nb::make_tuple(record.section, record.bytes, record.json));
        }
        return rows;
      },
      nb::arg("path"));
  // (kind, [(severity, what, where, advice)])
  m.def(
      "examine_folder",
      [](const std::string& folder) {
        const cluster::FolderReport report =
            TakeOrThrow(WithoutGil([&] { return cluster::ExamineFolder(folder); }));
        nb::list findings;
        for (const cluster::Finding& finding : report.findings) {
          findings.append(nb::make_tuple(std::string(cluster::Name(finding.severity)), finding.what,
                                         finding.where, finding.advice));
        }
        return nb::make_tuple(report.kind, findings);
      },
      nb::arg("folder"));
  // ([(payload, bytes, block digests in hex)], [(fragment id, bytes, fingerprint in hex)])
  m.def(
      "read_digests",
      [](const nb::bytes& object) {
        const client::DigestsTable table =
            TakeOrThrow(client::DigestsTable::Decode({object.c_str(), object.size()}));
        nb::list payloads;
        for (const client::DigestsTable::Entry& entry : table.entries()) {
          nb::list blocks;
          for (const BlockDigest& block : entry.blocks) {
            blocks.append(HexOf({reinterpret_cast<const char*>(block.bytes.data()), 16}));
          }
          payloads.append(nb::make_tuple(std::string(entry.name), entry.nbytes, blocks));
        }
        nb::list fragments;
        for (const client::DigestsTable::Fragment& fragment : table.fragments()) {
          fragments.append(
              nb::make_tuple(std::string(fragment.id), fragment.nbytes, ToHex(fragment.sha256)));
        }
        return nb::make_tuple(payloads, fragments);
      },
      nb::arg("object"));
  m.def("copy_strided", &CopyStrided, nb::arg("target"), nb::arg("source"), nb::arg("inner_bytes"),
        nb::arg("counts"), nb::arg("target_strides"), nb::arg("source_strides"),
        nb::arg("threads"));
}

void BindImporter(nb::module_& m) {
  nb::class_<Importer>(m, "Importer")
      .def("wanted_fragments",
           [](const Importer& importer, const std::string& participant) {
             return TakeOrThrow(importer.WantedFragments(participant));
           })
      .def("already_published", &Importer::already_published)
      .def("policy_note", &Importer::policy_note)
      .def("put_fragment", &PutFragment, nb::arg("participant"), nb::arg("placement_fragment_id"),
           nb::arg("address"), nb::arg("nbytes"), nb::arg("strides_bytes"))
      .def("finish", &Finish, nb::arg("timeout_seconds"))
      .def("abort", [](Importer& importer, const std::string& reason) {
        ThrowUnlessOk(WithoutGil([&] { return importer.Abort(reason); }));
      });
}

}  // namespace

void BindStore(nb::module_& m) {
  store_error = PyErr_NewExceptionWithDoc("mooncake._core.StoreError",
                                          "A store operation failed: (code name, message).",
                                          nullptr, nullptr);
  m.attr("StoreError") = nb::borrow(store_error);
  m.def("set_log_level", [](const std::string& level) { ThrowUnlessOk(SetLogLevel(level)); });

  BindTokens(m);
  BindTools(m);
  BindImporter(m);
  nb::class_<PyStoreClient>(m, "StoreClient")
      .def(nb::new_(&Open), nb::arg("target"), nb::kw_only(),
           nb::arg("default_policy") = nb::none(), nb::arg("threads") = 0,
           nb::arg("lease_ttl_ms") = 10'000, nb::arg("import_ttl_ms") = 10'000,
           nb::arg("retry_ms") = 15'000, nb::arg("capacity_bytes") = 0,
           nb::arg("step_observer") = nb::none(), nb::arg("token") = "", nb::arg("token_file") = "",
           nb::arg("tls_ca") = "", nb::arg("tls_cert") = "", nb::arg("tls_key") = "")
      .def("close", &PyStoreClient::Close)
      .def("begin_import", &BeginImport, nb::arg("identity"), nb::arg("placement"),
           nb::arg("participants"), nb::arg("policy").none(),
           nb::arg("verify_replicas") = "selected", nb::keep_alive<0, 1>())
      .def("load", &Load)
      .def("get_metadata",
           [](PyStoreClient& store, const IdentityTuple& identity) {
             StoreClient& client = store.client();
             return ViewFields(
                 TakeOrThrow(WithoutGil([&] { return client.GetMetadata(IdentityOf(identity)); })));
           })
      .def("exists",
           [](PyStoreClient& store, const IdentityTuple& identity) {
             StoreClient& client = store.client();
             return TakeOrThrow(WithoutGil([&] { return client.Exists(IdentityOf(identity)); }));
           })
      .def("get_size",
           [](PyStoreClient& store, const IdentityTuple& identity) {
             StoreClient& client = store.client();
             return TakeOrThrow(WithoutGil([&] { return client.GetSize(IdentityOf(identity)); }));
           })
      .def("read_manifest",
           [](PyStoreClient& store, const IdentityTuple& identity) {
             StoreClient& client = store.client();
             return ToPython(TakeOrThrow(
                 WithoutGil([&] { return client.ReadManifest(IdentityOf(identity)); })));
           })
      .def("describe_cluster",
           [](PyStoreClient& store) {
             cluster::OpenedStore& opened = store.opened();
             return TakeOrThrow(WithoutGil([&] { return opened.DescribeCluster(); }));
           })
      .def("list", &List)
      .def("remove", &Remove, nb::arg("identity"), nb::arg("expected_metadata_generation").none(),
           nb::arg("timeout_seconds"));
}

}  // namespace mooncake::python
