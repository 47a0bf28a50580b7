// Every check of runtime bindings, alone and against their placement.
#include <gtest/gtest.h>

#include <limits>

#include "manifest/contract_samples.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

template <class T, class Change>
T With(T value, Change change) {
  change(value);
  return value;
}

TEST(RuntimeBindingFragment, ChecksInOrder) {
  using V = RuntimeBindingFragment;
  const V good = View(Fragment("w", {0, 0}, {2, 2}), 4096);
  const auto with = [&good](auto change) { return MakeRuntimeBindingFragment(With(good, change)); };
  EXPECT_THAT(with([](V&) {}), Accepted());
  EXPECT_THAT(with([](V& v) { v.placement_fragment_id = ""; }),
              Refused("placement_fragment_id must be a non-empty string"));
  EXPECT_THAT(with([](V& v) { v.fragment_id = ""; }),
              Refused("fragment_id must be a non-empty string"));
  EXPECT_THAT(with([](V& v) { v.worker_id = ""; }),
              Refused("worker_id must be a non-empty string"));
  EXPECT_THAT(with([](V& v) { v.endpoint = ""; }), Refused("endpoint must be a non-empty string"));
  EXPECT_THAT(with([](V& v) { v.device = ""; }), Refused("device must be a non-empty string"));
  EXPECT_THAT(with([](V& v) { v.address = 0; }), Refused("address must be at least 1, got 0"));
  EXPECT_THAT(with([](V& v) { v.nbytes = 0; }), Refused("nbytes must be at least 1, got 0"));
  EXPECT_THAT(with([](V& v) { v.address = kMax - 7; }),
              Refused("address range must fit in an unsigned 64-bit integer"));
  EXPECT_THAT(with([](V& v) { v.itemsize = 0; }), Refused("runtime itemsize must be at least 1"));
  EXPECT_THAT(with([](V& v) {
                v.local_shape = {2, 0};
              }),
              Refused("runtime local_shape[1] must be at least 1"));
  EXPECT_THAT(with([](V& v) {
                v.strides_bytes = {-4, 2};
              }),
              Refused("runtime strides_bytes[0] must be at least 0"));
  EXPECT_THAT(with([](V& v) { v.strides_bytes = {2}; }),
              Refused("runtime stride rank differs from local_shape"));
  EXPECT_THAT(with([](V& v) {
                v.strides_bytes = {4, 0};
              }),
              Refused("runtime stride must be positive for non-singleton dimensions"));
  EXPECT_THAT(with([](V& v) { v.storage_address = 0; }),
              Refused("storage_address must be at least 1"));
  EXPECT_THAT(with([](V& v) { v.storage_nbytes = 0; }),
              Refused("storage_nbytes must be at least 1"));
  EXPECT_THAT(with([](V& v) { v.storage_nbytes = kMax; }),
              Refused("address range must fit in an unsigned 64-bit integer"));
  EXPECT_THAT(with([](V& v) { v.storage_offset_bytes = kMax; }),
              Refused("normalized runtime address must fit in 64 bits"));
  EXPECT_THAT(with([](V& v) { v.storage_offset_bytes = 1; }),
              Refused("runtime address must equal storage_address plus storage_offset_bytes"));
  EXPECT_THAT(with([](V& v) { v.storage_nbytes = 7; }),
              Refused("runtime view exceeds storage allocation bounds"));
  EXPECT_THAT(with([](V& v) {
                v.storage_address -= 8;
                v.storage_offset_bytes = 8;
                v.storage_nbytes = 15;
              }),
              Refused("runtime view exceeds storage allocation bounds"));
  EXPECT_THAT(with([](V& v) { v.local_shape = v.strides_bytes = {}; }), Accepted());
  EXPECT_THAT(with([](V& v) { v.address = v.storage_address = kMax - 8; }), Accepted());
}

TEST(RuntimeBindingFragment, RewritesStridesOfSingletons) {
  RuntimeBindingFragment view = View(Fragment("w", {0, 0, 0}, {2, 1, 3}), 4096);
  view.strides_bytes = {6, 0, 2};
  EXPECT_EQ(MakeRuntimeBindingFragment(view).value().strides_bytes, (Extents{6, 6, 2}));
}

PlacementPtr Mini() { return PlacementFromFragments(MiniInventory()).value(); }

TEST(RuntimeBinding, ChecksInOrder) {
  using B = RuntimeBinding;
  const PlacementPtr placement = Mini();
  const auto with = [&placement](auto change) {
    return MakeRuntimeBinding(With(Bind(*placement, 0, 4096), change));
  };
  EXPECT_THAT(with([](B&) {}), Accepted());
  EXPECT_THAT(with([](B& b) { b.fragments.clear(); }), Accepted());
  EXPECT_THAT(with([](B& b) { b.resource_id = ""; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.placement_id = ""; }),
              Refused("placement_id must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.instance_id = ""; }),
              Refused("instance_id must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.lease_id = ""; }), Refused("lease_id must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.revision = ""; }), Refused("revision must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.participant_id = ""; }),
              Refused("participant_id must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.placement_digest = ""; }),
              Refused("placement_digest must be a non-empty string"));
  EXPECT_THAT(with([](B& b) { b.placement_digest[3] = 'F'; }),
              Refused("placement_digest must be a lowercase SHA-256 digest"));
  EXPECT_THAT(with([](B& b) { b.fragments.push_back(b.fragments[0]); }),
              Refused("duplicate placement fragment in runtime binding"));
  EXPECT_THAT(with([](B& b) {
                b.fragments.push_back(b.fragments[0]);
                b.fragments[1].placement_fragment_id = "other";
              }),
              Refused("duplicate runtime fragment_id in runtime binding"));
}

TEST(ValidateRuntimeBinding, ChecksInOrder) {
  using B = RuntimeBinding;
  const PlacementPtr placement = Mini();
  const auto with = [&placement](auto change) {
    return ValidateRuntimeBinding(
        *placement, *MakeRuntimeBinding(With(Bind(*placement, 0, 4096), change)).value());
  };
  EXPECT_THAT(with([](B&) {}), Accepted());
  EXPECT_THAT(with([](B& b) { b.resource_id = "n"; }),
              Refused("placement and runtime binding resource_id differ: m and n"));
  EXPECT_THAT(with([](B& b) { b.placement_id = "n"; }),
              Refused("placement_id and runtime binding placement_id differ"));
  EXPECT_THAT(with([](B& b) { b.placement_digest = std::string(64, '0'); }),
              Refused("placement digest and runtime binding placement digest differ"));
  EXPECT_THAT(with([](B& b) { b.revision = "n"; }),
              Refused("placement and runtime binding revision differ"));
  EXPECT_THAT(with([](B& b) { b.participant_id = "p9"; }),
              Refused("unknown runtime binding participant: p9"));
  EXPECT_THAT(with([](B& b) { b.fragments[0].placement_fragment_id = "x"; }),
              Refused("unknown placement fragment in runtime binding: x"));
  EXPECT_THAT(with([](B& b) { b.fragments.clear(); }),
              Refused("missing placement fragment in runtime binding: sha256:"));
  EXPECT_THAT(with([](B& b) { b.fragments[0].nbytes = 4; }),
              Refused("runtime binding byte size does not match placement: sha256:"));
  EXPECT_THAT(with([](B& b) {
                b.fragments[0].local_shape = {4, 1};
                b.fragments[0].strides_bytes = {2, 2};
              }),
              Refused("runtime binding local_shape does not match placement"));
  EXPECT_THAT(with([](B& b) { b.fragments[0].itemsize = 4; }),
              Refused("runtime binding itemsize does not match placement"));
  EXPECT_THAT(with([](B& b) {
                b.fragments[0].strides_bytes = {2, 4};
              }),
              Refused("runtime binding stride does not describe a canonical contiguous view"));
}

// One participant with v (4 elements), w (4) and u (2); v and w are tied.
PlacementPtr Tied() {
  const std::vector<std::string> group = {"v", "w"};
  return PlacementFromFragments(
             Inventory(Topology({{}}), {Tensor("u", {2}), Tensor("v", {4}), Tensor("w", {4})},
                       {Fragment("u", {0}, {2}), Fragment("v", {0}, {4}, {}, group),
                        Fragment("w", {0}, {4}, {}, group)}))
      .value();
}

RuntimeBindingFragment& ViewOf(const Placement& placement, RuntimeBinding& binding,
                               std::string_view tensor_id) {
  for (size_t i = 0; i < binding.fragments.size(); ++i) {
    if (placement.parts[0].fragments[i].tensor_id == tensor_id) return binding.fragments[i];
  }
  std::abort();
}

void MoveTo(RuntimeBindingFragment& view, uint64_t address) {
  view.address = view.storage_address = address;
}

TEST(AddressRules, OnlyDeclaredAliasesShareBytes) {
  const PlacementPtr placement = Tied();
  const auto with = [&placement](auto change) {
    RuntimeBinding binding = Bind(*placement, 0, 4096);
    change(binding);
    return ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(binding).value());
  };
  const auto view = [&placement](RuntimeBinding& b,
                                 std::string_view id) -> RuntimeBindingFragment& {
    return ViewOf(*placement, b, id);
  };
  using B = RuntimeBinding;
  EXPECT_THAT(with([](B&) {}), Accepted());  // adjacent ranges
  EXPECT_THAT(with([&](B& b) { MoveTo(view(b, "v"), view(b, "w").address); }), Accepted());
  EXPECT_THAT(with([&](B& b) { MoveTo(view(b, "v"), view(b, "w").address + 2); }),
              Refused("runtime binding address ranges overlap: sha256:"));
  EXPECT_THAT(with([&](B& b) { MoveTo(view(b, "u"), view(b, "w").address); }),
              Refused("in ('instance', 'worker', 'cuda:0')"));
  // Another device is another address space; another endpoint is not.
  EXPECT_THAT(with([&](B& b) {
                MoveTo(view(b, "u"), view(b, "w").address);
                view(b, "u").device = "cuda:1";
              }),
              Accepted());
  EXPECT_THAT(with([&](B& b) {
                MoveTo(view(b, "u"), view(b, "w").address);
                view(b, "u").worker_id = "other";
              }),
              Accepted());
  EXPECT_THAT(with([&](B& b) {
                MoveTo(view(b, "u"), view(b, "w").address);
                view(b, "u").endpoint = "host:2";
              }),
              Refused("runtime binding address ranges overlap"));
}

TEST(AddressRules, AllocationsAreTheSameOrDisjoint) {
  const PlacementPtr placement = Tied();
  RuntimeBinding shared = Bind(*placement, 0, 4096);
  for (RuntimeBindingFragment& view : shared.fragments) {
    view.storage_address = 4096;
    view.storage_offset_bytes = view.address - 4096;
    view.storage_nbytes = 64;
  }
  EXPECT_THAT(ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(shared).value()), Accepted());
  shared.fragments[2].storage_nbytes = 65;
  EXPECT_THAT(ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(shared).value()),
              Refused("runtime binding storage allocation ranges overlap"));
}

TEST(ValidateRuntimeBindings, ChecksTheSet) {
  const PlacementPtr placement = Mini();
  const auto binding = [&placement](size_t part, uint64_t address, std::string instance) {
    RuntimeBinding fields = Bind(*placement, part, address);
    fields.instance_id = std::move(instance);
    return MakeRuntimeBinding(fields).value();
  };
  const auto validate = [&placement](const std::vector<RuntimeBindingPtr>& bindings) {
    return ValidateRuntimeBindings(*placement, bindings);
  };
  const RuntimeBindingPtr zero = binding(0, 4096, "a");
  EXPECT_THAT(validate({zero, binding(1, 8192, "a")}), Accepted());
  EXPECT_THAT(validate({zero, zero}), Refused("duplicate runtime binding participant: p0"));
  EXPECT_THAT(validate({zero}), Refused("missing runtime binding participant: p1"));
  EXPECT_THAT(validate({}), Refused("missing runtime binding participant: p0"));
  // Each is fine alone; together they overlap inside one instance.
  EXPECT_THAT(validate({zero, binding(1, 4100, "a")}),
              Refused("runtime binding address ranges overlap"));
  EXPECT_THAT(validate({zero, binding(1, 4100, "b")}), Accepted());
  RuntimeBinding wrong = Bind(*placement, 1, 8192);
  wrong.revision = "n";
  EXPECT_THAT(validate({zero, MakeRuntimeBinding(wrong).value()}),
              Refused("placement and runtime binding revision differ"));
}

TEST(ValidateRuntimeBindings, EmptyPartsAreNotBound) {
  const PlacementPtr placement =
      PlacementFromFragments(Inventory(Topology({{.pp = 0}, {.pp = 1}}),
                                       {Tensor("w", {4}, {Owned(AxisKind::kPp)})},
                                       {Fragment("w", {0}, {4}, {.pp = 1})}))
          .value();
  const RuntimeBindingPtr empty = MakeRuntimeBinding(Bind(*placement, 0, 4096)).value();
  const RuntimeBindingPtr full = MakeRuntimeBinding(Bind(*placement, 1, 4096)).value();
  EXPECT_THAT(ValidateRuntimeBindings(*placement, std::vector{full}), Accepted());
  EXPECT_THAT(ValidateRuntimeBindings(*placement, std::vector{full, empty}),
              Refused("unknown runtime binding participant: p0"));
}

}  // namespace
}  // namespace mooncake::manifest
