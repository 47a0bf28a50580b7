// Transfer regions and logical plans.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "geometry/strided_region.h"
#include "python/bindings.h"
#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/handles.h"
#include "python/plan_values.h"
#include "reshard/plan.h"
#include "reshard/plan_check.h"
#include "reshard/plan_reuse.h"
#include "reshard/plan_summary.h"

namespace mooncake::python {

namespace {

using reshard::PlanSide;

// ---- small values -------------------------------------------------------------------------------

uint64_t ReadLimit(nb::handle self, PyObject* field, const char* name) {
  const nb::object value = Get(self, field);
  if (!PyLong_CheckExact(value.ptr()) ||
      PyObject_RichCompareBool(value.ptr(), nb::int_(0).ptr(), Py_GT) != 1) {
    Refuse(fmt::format("planning limit {} must be a positive integer", name));
  }
  // No plan comes near 2^64 of anything: larger limits mean the same.
  const uint64_t limit = PyLong_AsUnsignedLongLong(value.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return UINT64_MAX;
  }
  return limit;
}

manifest::Extents RegionInts(nb::handle region, PyObject* field, const char* name, int64_t min) {
  const nb::object value = Get(region, field);
  const std::string label = fmt::format("transfer region {}", name);
  if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
    Refuse(label + " must contain integers");
  }
  PyObject* tuple = PySequence_Tuple(value.ptr());
  if (tuple == nullptr) {
    PyErr_Clear();
    Refuse(label + " must contain integers");
  }
  const nb::tuple items = nb::steal<nb::tuple>(tuple);
  manifest::Extents numbers;
  for (nb::handle item : items) numbers.push_back(Int(item, label, min));
  // A generator is spent now: the field keeps its numbers.
  if (!PyTuple_CheckExact(value.ptr())) Set(region, field, items);
  return numbers;
}

// What a region needs of its fragments; other classes may play one (the plan's check is strict).
template <class Fragment>
Fragment ReadBox(nb::handle fragment) {
  Fragment box;
  box.tensor_id = Text(Get(fragment, N().tensor_id), "tensor_id");
  box.global_offset = Ints(Get(fragment, N().global_offset), "global_offset", 0);
  box.local_shape = Ints(Get(fragment, N().local_shape), "local_shape", 1);
  box.nbytes = U64(Get(fragment, N().nbytes), "nbytes", 1);
  return box;
}

// Everything but source and target.
void ReadRegionNumbers(nb::handle self, reshard::TransferRegion& region) {
  region.overlap_offset = RegionInts(self, N().overlap_offset, "overlap_offset", INT64_MIN);
  region.overlap_shape = RegionInts(self, N().overlap_shape, "overlap_shape", INT64_MIN);
  region.outer_loop_counts =
      RegionInts(self, N().outer_loop_counts, "outer_loop_counts", INT64_MIN);
  region.source_strides = RegionInts(self, N().source_strides, "source_strides", INT64_MIN);
  region.target_strides = RegionInts(self, N().target_strides, "target_strides", INT64_MIN);
  region.tensor_id = Text(Get(self, N().tensor_id), "transfer region tensor_id");
  region.source_base_offset =
      Int(Get(self, N().source_base_offset), "transfer region source_base_offset", 0);
  region.target_base_offset =
      Int(Get(self, N().target_base_offset), "transfer region target_base_offset", 0);
  region.inner_bytes = Int(Get(self, N().inner_bytes), "transfer region inner_bytes", 0);
}

reshard::TransferRegion ReadRegion(nb::handle self) {
  reshard::TransferRegion region;
  ReadRegionNumbers(self, region);
  region.source = ReadBox<manifest::PlacementFragment>(Get(self, N().source));
  region.target = ReadBox<manifest::PlacementFragment>(Get(self, N().target));
  return region;
}

void CheckTransferRegion(nb::handle self) {
  ThrowIfError(reshard::ValidateTransferRegion(ReadRegion(self)));
}

void CheckTransferRegionBounds(nb::handle self) {
  const reshard::TransferRegion region = ReadRegion(self);
  ThrowIfError(reshard::ValidateTransferRegion(region));
  const auto& source = std::get<manifest::PlacementFragment>(region.source);
  ThrowIfError(geometry::ValidateBounds(reshard::StridedRegionOf(region), source.nbytes,
                                        region.target.nbytes));
}

void CheckPipelineRouteGroup(nb::handle self) {
  reshard::PipelineRouteGroup group;
  group.source_pp = OptionalInt(Get(self, N().source_pp), "source_pp", 0);
  group.source_pipeline_stage_id =
      OptionalInt(Get(self, N().source_pipeline_stage_id), "source_pipeline_stage_id", 0);
  group.target_pp = Int(Get(self, N().target_pp), "target_pp", 0);
  group.target_pipeline_stage_id =
      OptionalInt(Get(self, N().target_pipeline_stage_id), "target_pipeline_stage_id", 0);
  nb::tuple indices;
  for (const int64_t index :
       Ints(Get(self, N().operation_indices), "operation_indices", 0, &indices)) {
    if (index > UINT32_MAX) Refuse("operation_indices must fit in 32 bits");
    group.operation_indices.push_back(static_cast<uint32_t>(index));
  }
  ThrowIfError(reshard::ValidatePipelineRouteGroup(group));
  Set(self, N().operation_indices, indices);
}

reshard::PlacementExecutor ReadExecutor(nb::handle self, nb::tuple* ids = nullptr) {
  reshard::PlacementExecutor executor;
  executor.placement_id = Text(Get(self, N().placement_id), "placement_id");
  executor.participant_id = Text(Get(self, N().participant_id), "participant_id");
  executor.rank = ReadRankField(self, "placement executor rank");
  nb::tuple items = AsTuple(Get(self, N().placement_fragment_ids), "placement_fragment_ids",
                            "must be a sequence");
  for (nb::handle id : items) {
    executor.placement_fragment_ids.push_back(Text(id, "placement_fragment_ids"));
  }
  if (ids != nullptr) *ids = std::move(items);
  return executor;
}

void CheckPlacementExecutor(nb::handle self) {
  nb::tuple ids;
  ThrowIfError(reshard::ValidatePlacementExecutor(ReadExecutor(self, &ids)));
  Set(self, N().placement_fragment_ids, ids);
}

// ---- plans --------------------------------------------------------------------------------------

// A plan's operation, whose fragments must be of the contract's classes.
reshard::TransferRegion ReadOperation(nb::handle self) {
  reshard::TransferRegion region;
  ReadRegionNumbers(self, region);
  const nb::object source = Get(self, N().source);
  const nb::object target = Get(self, N().target);
  if (!Classes().placement_fragment.IsInstance(target)) {
    Refuse("logical plan operation target must be a PlacementFragment");
  }
  region.target = ReadPlacementFragment(target);
  if (Classes().placement_fragment.IsInstance(source)) {
    region.source = ReadPlacementFragment(source);
  } else if (Classes().stored_fragment.IsInstance(source)) {
    region.source = ReadStoredFragment(source);
  } else {
    Refuse("logical plan operation source must be a PlacementFragment or StoredFragment");
  }
  return region;
}

std::vector<manifest::TensorDescriptor> ReadCatalog(nb::handle self, PyObject* field,
                                                    const char* name) {
  const nb::tuple items = Items(Get(self, field), name, Classes().tensor_descriptor);
  std::vector<manifest::TensorDescriptor> tensors;
  tensors.reserve(items.size());
  for (nb::handle tensor : items) tensors.push_back(ReadTensor(tensor));
  Set(self, field, items);
  return tensors;
}

std::vector<reshard::PlacementExecutor> ReadExecutors(nb::handle self, PyObject* field,
                                                      const char* name) {
  const nb::tuple items = Items(Get(self, field), name, Classes().executor);
  std::vector<reshard::PlacementExecutor> executors;
  for (nb::handle executor : items) executors.push_back(ReadExecutor(executor));
  Set(self, field, items);
  return executors;
}

LogicalPlanHandle MakeLogicalPlan(nb::handle self, nb::handle balance_digest) {
  reshard::LogicalPlanFields fields;
  fields.resource_id = Text(Get(self, N().resource_id), "resource_id");
  fields.revision = Text(Get(self, N().revision), "revision");
  const nb::object source_placement = Get(self, N().source_placement);
  if (!source_placement.is_none()) {
    fields.source_placement = PlacementOf(source_placement, "logical plan source_placement");
  }
  fields.target_placement =
      PlacementOf(Get(self, N().target_placement), "logical plan target_placement");
  const nb::object source_manifest = Get(self, N().source_manifest);
  if (!source_manifest.is_none()) {
    fields.source_manifest = StoredManifestOf(source_manifest, "logical plan source_manifest");
  }
  const nb::object limits = Get(self, N().planning_limits);
  if (!Classes().planning_limits.IsInstance(limits)) {
    Refuse("planning_limits must be PlanningLimits");
  }
  fields.planning_limits = ReadLimits(limits);
  fields.balance_digest = OptionalText(balance_digest, "balance_digest").value_or("");
  fields.source_tensors = ReadCatalog(self, N().source_tensors, "logical plan source_tensors");
  fields.target_tensors = ReadCatalog(self, N().target_tensors, "logical plan target_tensors");
  const nb::tuple operations =
      Items(Get(self, N().operations), "logical plan operations", Classes().transfer_region);
  fields.operations.reserve(operations.size());
  for (nb::handle operation : operations) {
    fields.operations.push_back(ReadOperation(operation));
  }
  Set(self, N().operations, operations);
  fields.source_executors =
      ReadExecutors(self, N().source_executors, "logical plan source_executors");
  fields.target_executors =
      ReadExecutors(self, N().target_executors, "logical plan target_executors");
  Result<reshard::LogicalPlanPtr> made = [&fields] {
    nb::gil_scoped_release release;
    return reshard::MakeLogicalPlan(fields);
  }();
  return {ValueOrThrow(std::move(made))};
}

PlanSide SideOf(std::string_view side) {
  if (side == "source") return PlanSide::kSource;
  if (side == "target") return PlanSide::kTarget;
  Refuse(fmt::format("invalid executor side: {}", side));
}

std::span<const uint32_t> ExecutorsOn(const reshard::LogicalPlan& plan, PlanSide side) {
  return side == PlanSide::kSource ? plan.source_executors() : plan.target_executors();
}

const manifest::PlacementPart& ExecutorPart(const reshard::LogicalPlan& plan, PlanSide side,
                                            size_t index) {
  const auto executors = ExecutorsOn(plan, side);
  if (index >= executors.size()) throw nb::index_error();
  const manifest::PlacementPtr& placement =
      side == PlanSide::kSource ? plan.source_placement() : plan.target_placement();
  return placement->parts[executors[index]];
}

nb::tuple IndexTuple(std::span<const uint32_t> indices) {
  nb::list list;
  for (const uint32_t index : indices) list.append(index);
  return nb::tuple(list);
}

nb::tuple ByteTuple(const std::array<uint64_t, geometry::kMaxRank>& values, int count) {
  nb::list list;
  for (int i = 0; i < count; ++i) list.append(values[static_cast<size_t>(i)]);
  return nb::tuple(list);
}

void Init(nb::handle object, PyObject* name, nb::handle value) {
  if (PyObject_GenericSetAttr(object.ptr(), name, value.ptr()) != 0) throw nb::python_error();
}

nb::object ItemOf(nb::handle sequence, uint32_t index) {
  // Through the sequence protocol: a lazy tuple makes the item.
  PyObject* item = PySequence_GetItem(sequence.ptr(), index);
  if (item == nullptr) throw nb::python_error();
  return nb::steal(item);
}

nb::object RegionToPython(const reshard::LogicalPlan& plan, size_t index, nb::handle sources,
                          nb::handle targets) {
  const reshard::PlannedOperation operation = plan.operations()[index];
  const nb::object source = ItemOf(sources, operation.source);
  const nb::object target = ItemOf(targets, operation.target);
  const geometry::Box overlap = plan.overlap(index);
  const geometry::StridedRegion region = plan.region(index);
  manifest::Extents offset, shape;
  for (int dim = 0; dim < overlap.rank(); ++dim) {
    offset.push_back(overlap.begin(dim));
    shape.push_back(overlap.extent(dim));
  }
  nb::object object = Classes().transfer_region.Make();
  Init(object, N().tensor_id, Get(target, N().tensor_id));
  Init(object, N().source, source);
  Init(object, N().target, target);
  Init(object, N().overlap_offset, ToTuple(offset));
  Init(object, N().overlap_shape, ToTuple(shape));
  Init(object, N().source_base_offset, nb::int_(region.source_base_offset));
  Init(object, N().target_base_offset, nb::int_(region.target_base_offset));
  Init(object, N().inner_bytes, nb::int_(region.inner_bytes));
  Init(object, N().outer_loop_counts, ByteTuple(region.counts, region.loops));
  Init(object, N().source_strides, ByteTuple(region.source_strides, region.loops));
  Init(object, N().target_strides, ByteTuple(region.target_strides, region.loops));
  return object;
}

nb::list Catalog(std::span<const manifest::TensorDescriptor* const> tensors, size_t begin,
                 size_t end) {
  if (begin > end || end > tensors.size()) throw nb::index_error();
  Maker maker;
  nb::list made;
  for (size_t i = begin; i < end; ++i) made.append(maker.Tensor(*tensors[i]));
  return made;
}

bool SameValue(const auto& a, const auto& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

bool SamePlan(const reshard::LogicalPlan& a, const reshard::LogicalPlan& b) {
  const auto same = [](auto x, auto y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  // A plan of a whole target of one part is the local plan of that part, with other positions.
  const auto same_operation = [&](const auto& x, const auto& y) {
    return x.source == y.source && a.target_fragments()[x.target].placement_fragment_id ==
                                       b.target_fragments()[y.target].placement_fragment_id;
  };
  if (a.limits() != b.limits() || a.balance_digest() != b.balance_digest() ||
      a.target_tensors().size() != b.target_tensors().size() ||
      !std::equal(a.operations().begin(), a.operations().end(), b.operations().begin(),
                  b.operations().end(), same_operation) ||
      !same(a.source_executors(), b.source_executors()) ||
      !same(a.target_executors(), b.target_executors()) ||
      !SameValue(a.source_placement(), b.source_placement()) ||
      !SameValue(a.source_manifest(), b.source_manifest()) ||
      !SameValue(a.target_placement(), b.target_placement())) {
    return false;
  }
  for (size_t i = 0; i < a.operations().size(); ++i) {
    if (a.overlap(i) != b.overlap(i)) return false;
  }
  return true;
}

nb::list RouteTuples(const reshard::LogicalPlan& plan) {
  nb::list routes;
  for (const reshard::PipelineRouteGroup& group : reshard::PipelineRoutes(plan)) {
    routes.append(nb::make_tuple(ToInt(group.source_pp), ToInt(group.source_pipeline_stage_id),
                                 group.target_pp, ToInt(group.target_pipeline_stage_id),
                                 IndexTuple(group.operation_indices)));
  }
  return routes;
}

nb::tuple LimitsTuple(const reshard::PlanningLimits& limits) {
  return nb::make_tuple(limits.max_transfer_regions, limits.max_segments_per_region,
                        limits.max_total_lowered_segments);
}

nb::tuple TotalsTuple(const reshard::PlanTotals& totals) {
  return nb::make_tuple(totals.regions, totals.runs, totals.bytes);
}

// (totals, ((source participant or None, target participant, totals), ...), ((tensor id, totals),
// ...), operation of most runs, operation of smallest runs); totals are (regions, runs, bytes).
nb::tuple SummaryOf(const reshard::LogicalPlan& plan) {
  const reshard::PlanSummary summary = [&plan] {
    nb::gil_scoped_release release;
    return reshard::Summarize(plan);
  }();
  const auto participant = [](const manifest::PlacementPtr& placement, uint32_t part) {
    return ToStr(placement->parts[part].participant_id);
  };
  nb::list pairs, tensors;
  for (const reshard::PairTotals& pair : summary.pairs) {
    nb::object source = nb::none();
    if (pair.source) source = participant(plan.source_placement(), *pair.source);
    pairs.append(nb::make_tuple(source, participant(plan.target_placement(), pair.target),
                                TotalsTuple(pair.totals)));
  }
  for (const reshard::TensorTotals& tensor : summary.tensors) {
    tensors.append(nb::make_tuple(ToStr(plan.target_tensors()[tensor.tensor]->tensor_id),
                                  TotalsTuple(tensor.totals)));
  }
  return nb::make_tuple(TotalsTuple(summary.totals), nb::tuple(pairs), nb::tuple(tensors),
                        summary.most_runs, summary.smallest_runs);
}

void BindExecutors(nb::class_<LogicalPlanHandle>& plan) {
  using Self = const LogicalPlanHandle&;
  plan.def(
          "executor_count",
          [](Self self, const std::string& side) {
            return ExecutorsOn(*self.value, SideOf(side)).size();
          },
          nb::arg("side"))
      .def(
          "executor_participant",
          [](Self self, const std::string& side, size_t index) {
            return ToStr(ExecutorPart(*self.value, SideOf(side), index).participant_id);
          },
          nb::arg("side"), nb::arg("index"))
      .def(
          "executor_fragment_count",
          [](Self self, const std::string& side, size_t index) {
            return ExecutorPart(*self.value, SideOf(side), index).fragments.size();
          },
          nb::arg("side"), nb::arg("index"))
      .def(
          "executor_fragment_ids",
          [](Self self, const std::string& side, size_t index, size_t begin, size_t end) {
            const auto& fragments = ExecutorPart(*self.value, SideOf(side), index).fragments;
            if (begin > end || end > fragments.size()) throw nb::index_error();
            nb::list ids;
            for (size_t i = begin; i < end; ++i) {
              ids.append(ToStr(fragments[i].placement_fragment_id));
            }
            return ids;
          },
          nb::arg("side"), nb::arg("index"), nb::arg("begin"), nb::arg("end"))
      .def(
          "operation_indices",
          [](Self self, const std::string& side, size_t index) {
            const auto lists = reshard::OperationsByExecutor(*self.value, SideOf(side));
            if (index + 1 >= lists.begins.size()) throw nb::index_error();
            return IndexTuple(lists.of(index));
          },
          nb::arg("side"), nb::arg("index"));
}

void BindLogicalPlan(nb::module_& m) {
  using Self = const LogicalPlanHandle&;
  nb::class_<LogicalPlanHandle> plan(m, "LogicalPlan");
  BindExecutors(plan);
  plan.def_prop_ro("total_bytes", [](Self self) { return self.value->total_bytes(); })
      .def_prop_ro("geometry_digest",
                   [](Self self) { return ToStr(reshard::GeometryDigestOf(*self.value)); })
      .def("save",
           [](Self self) {
             const std::string saved = ValueOrThrow(reshard::SavePlan(*self.value));
             return nb::bytes(saved.data(), saved.size());
           })
      .def("limits", [](Self self) { return LimitsTuple(self.value->limits()); })
      .def_prop_ro("balance_digest",
                   [](Self self) -> nb::object {
                     const std::string& digest = self.value->balance_digest();
                     if (digest.empty()) return nb::none();
                     return ToStr(digest);
                   })
      .def("summary", [](Self self) { return SummaryOf(*self.value); })
      .def_prop_ro("total_segments", [](Self self) { return self.value->total_segments(); })
      .def_prop_ro("memory_bytes", [](Self self) { return self.value->memory_bytes(); })
      .def_prop_ro("operation_count", [](Self self) { return self.value->operations().size(); })
      .def_prop_ro("local_target_part", [](Self self) { return self.value->local_target_part(); })
      .def_prop_ro("source_placement_id",
                   [](Self self) -> nb::object {
                     const auto& source = self.value->source_placement();
                     if (source == nullptr) return nb::none();
                     return ToStr(source->placement_id);
                   })
      .def_prop_ro("source_tensor_count",
                   [](Self self) { return self.value->source_tensors().size(); })
      .def_prop_ro("target_tensor_count",
                   [](Self self) { return self.value->target_tensors().size(); })
      .def(
          "source_tensors",
          [](Self self, size_t begin, size_t end) {
            return Catalog(self.value->source_tensors(), begin, end);
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "target_tensors",
          [](Self self, size_t begin, size_t end) {
            return Catalog(self.value->target_tensors(), begin, end);
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "operations",
          [](Self self, size_t begin, size_t end, nb::handle sources, nb::handle targets) {
            if (begin > end || end > self.value->operations().size()) throw nb::index_error();
            nb::list made;
            for (size_t i = begin; i < end; ++i) {
              made.append(RegionToPython(*self.value, i, sources, targets));
            }
            return made;
          },
          nb::arg("begin"), nb::arg("end"), nb::arg("sources"), nb::arg("targets"))
      .def("pipeline_routes", [](Self self) { return RouteTuples(*self.value); })
      .def(
          "__eq__",
          [](Self self, const LogicalPlanHandle& other) {
            return self.value == other.value || SamePlan(*self.value, *other.value);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  m.def("make_logical_plan", &MakeLogicalPlan, AnyArg("value"), AnyArg("balance_digest"));
}

}  // namespace

reshard::PlanningLimits ReadLimits(nb::handle limits) {
  return {
      .max_transfer_regions = ReadLimit(limits, N().max_transfer_regions, "max_transfer_regions"),
      .max_segments_per_region =
          ReadLimit(limits, N().max_segments_per_region, "max_segments_per_region"),
      .max_total_lowered_segments =
          ReadLimit(limits, N().max_total_lowered_segments, "max_total_lowered_segments")};
}

void BindPlans(nb::module_& m) {
  m.def(
      "check_planning_limits", [](nb::handle self) { ReadLimits(self); }, AnyArg("value"));
  m.def("check_transfer_region", &CheckTransferRegion, AnyArg("value"));
  m.def("check_transfer_region_bounds", &CheckTransferRegionBounds, AnyArg("value"));
  m.def("check_pipeline_route_group", &CheckPipelineRouteGroup, AnyArg("value"));
  m.def("check_placement_executor", &CheckPlacementExecutor, AnyArg("value"));
  BindLogicalPlan(m);
}

}  // namespace mooncake::python
