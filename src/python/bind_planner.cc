// Making plans: the planner, its options, and plans that are made again from others.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "python/bindings.h"
#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"
#include "python/handles.h"
#include "python/plan_values.h"
#include "reshard/balance.h"
#include "reshard/plan_reuse.h"
#include "reshard/planner.h"

namespace mooncake::python {

namespace {

reshard::HostMap ReadHosts(nb::handle value, const char* name) {
  if (!PyDict_Check(value.ptr())) Refuse(std::string(name) + " must be a dict");
  reshard::HostMap hosts;
  for (const auto& [participant, host] : nb::borrow<nb::dict>(value)) {
    hosts.emplace(Text(participant, name), Text(host, name));
  }
  return hosts;
}

nb::object BalanceDigest(nb::handle source_hosts, nb::handle target_hosts) {
  return ToStr(reshard::DigestOf({ReadHosts(source_hosts, "balance source_hosts"),
                                  ReadHosts(target_hosts, "balance target_hosts")}));
}

template <class Planning>
LogicalPlanHandle PlanWithoutGil(Planning&& planning) {
  Result<reshard::LogicalPlanPtr> made = [&planning] {
    nb::gil_scoped_release release;
    return planning();
  }();
  return {ValueOrThrow(std::move(made))};
}

reshard::PlanSource PlanSourceOf(nb::handle source) {
  if (Classes().stored_manifest.IsInstance(source)) return {nullptr, StoredManifestOf(source)};
  return {PlacementOf(source, "source"), nullptr};
}

LogicalPlanHandle ReusePlan(const LogicalPlanHandle& plan, nb::handle source, nb::handle target) {
  const reshard::PlanSource from = PlanSourceOf(source);
  const auto to = PlacementOf(target, "target");
  return PlanWithoutGil([&] { return reshard::ReusePlan(*plan.value, from, to); });
}

LogicalPlanHandle LoadPlan(nb::handle saved, nb::handle source, nb::handle target) {
  if (!PyBytes_Check(saved.ptr())) Refuse("saved plan must be bytes");
  const std::string_view bytes(PyBytes_AS_STRING(saved.ptr()),
                               static_cast<size_t>(PyBytes_GET_SIZE(saved.ptr())));
  const reshard::PlanSource from = PlanSourceOf(source);
  const auto to = PlacementOf(target, "target");
  return PlanWithoutGil([&] { return reshard::LoadPlan(bytes, from, to); });
}

// None, or (source hosts, target hosts).
std::optional<reshard::Balance> ReadBalance(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  const nb::tuple maps = AsTuple(value, "balance", "must be two mappings");
  if (maps.size() != 2) Refuse("balance must be two mappings");
  return reshard::Balance{ReadHosts(maps[0], "balance source_hosts"),
                          ReadHosts(maps[1], "balance target_hosts")};
}

LogicalPlanHandle PlanPlacement(nb::handle source, nb::handle target, nb::handle limits,
                                nb::handle balance) {
  const auto from = PlacementOf(source);
  const auto to = PlacementOf(target);
  const reshard::PlanningLimits bounds = ReadLimits(limits);
  const std::optional<reshard::Balance> even = ReadBalance(balance);
  return PlanWithoutGil(
      [&] { return reshard::PlanPlacement(from, to, bounds, even ? &*even : nullptr); });
}

LogicalPlanHandle PlanPlacementToLocalTarget(nb::handle source, nb::handle target,
                                             nb::handle participant_id, nb::handle limits,
                                             nb::handle balance) {
  const auto from = PlacementOf(source);
  const auto to = PlacementOf(target);
  const std::optional<std::string> participant =
      OptionalText(participant_id, "target_participant_id");
  const reshard::PlanningLimits bounds = ReadLimits(limits);
  const std::optional<reshard::Balance> even = ReadBalance(balance);
  return PlanWithoutGil([&] {
    return reshard::PlanPlacementToLocalTarget(from, to, participant, bounds,
                                               even ? &*even : nullptr);
  });
}

LogicalPlanHandle PlanStored(nb::handle source, nb::handle target, nb::handle limits) {
  const auto from = StoredManifestOf(source);
  const auto to = PlacementOf(target);
  const reshard::PlanningLimits bounds = ReadLimits(limits);
  return PlanWithoutGil([&] { return reshard::PlanStored(from, to, bounds); });
}

LogicalPlanHandle PlanStoredToLocalTarget(nb::handle source, nb::handle target,
                                          nb::handle participant_id, nb::handle limits) {
  const auto from = StoredManifestOf(source);
  const auto to = PlacementOf(target);
  const std::optional<std::string> participant =
      OptionalText(participant_id, "target_participant_id");
  const reshard::PlanningLimits bounds = ReadLimits(limits);
  return PlanWithoutGil(
      [&] { return reshard::PlanStoredToLocalTarget(from, to, participant, bounds); });
}

}  // namespace

void BindPlanner(nb::module_& m) {
  m.def("balance_digest", &BalanceDigest, AnyArg("source_hosts"), AnyArg("target_hosts"));
  m.def(
      "host_of_binding",
      [](nb::handle binding) { return reshard::HostOf(*RuntimeBindingOf(binding)); },
      AnyArg("binding"));
  m.def("reuse_plan", &ReusePlan, nb::arg("plan"), AnyArg("source"), AnyArg("target"));
  m.def("load_plan", &LoadPlan, AnyArg("saved"), AnyArg("source"), AnyArg("target"));
  m.def("plan_placement", &PlanPlacement, AnyArg("source"), AnyArg("target"), AnyArg("limits"),
        AnyArg("balance"));
  m.def("plan_placement_to_local_target", &PlanPlacementToLocalTarget, AnyArg("source"),
        AnyArg("target"), AnyArg("participant_id"), AnyArg("limits"), AnyArg("balance"));
  m.def("plan_stored", &PlanStored, AnyArg("source"), AnyArg("target"), AnyArg("limits"));
  m.def("plan_stored_to_local_target", &PlanStoredToLocalTarget, AnyArg("source"), AnyArg("target"),
        AnyArg("participant_id"), AnyArg("limits"));
}

}  // namespace mooncake::python
