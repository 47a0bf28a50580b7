// Time to make, write and read placements and stored manifests of many fragments.
#include <benchmark/benchmark.h>

#include <string>

#include "base/check.h"
#include "manifest/canonical.h"
#include "manifest/json.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

// `count` expert tensors, each cut into `ranks` row blocks over tensor-parallel ranks.
FragmentInventory Inventory(int64_t count, int64_t ranks) {
  FragmentInventory inventory;
  inventory.resource_id = "model";
  inventory.revision = "r1";
  inventory.placement_set_id = "set";
  inventory.topology.tp_size = ranks;
  for (int64_t t = 0; t < ranks; ++t) {
    inventory.topology.participants.push_back({"rank-" + std::to_string(t), {.tp = t}});
  }
  inventory.topology = MakeTopology(std::move(inventory.topology)).value();
  for (int64_t i = 0; i < count; ++i) {
    TensorDescriptor tensor;
    tensor.tensor_id = "model.layers." + std::to_string(i / 384) + ".mlp.experts." +
                       std::to_string(i % 384) + ".weight";
    tensor.global_shape = {128 * ranks, 2048};
    tensor.dtype = "bfloat16";
    tensor.itemsize = 2;
    tensor.shard_dims = {0};
    tensor.layout_fingerprint = "row-major-v1";
    tensor.parallel_axes = {{AxisKind::kTp, AxisSemantics::kSplit, 0}};
    for (int64_t t = 0; t < ranks; ++t) {
      PlacementFragment fragment;
      fragment.tensor_id = tensor.tensor_id;
      fragment.global_offset = {128 * t, 0};
      fragment.local_shape = {128, 2048};
      fragment.nbytes = 128 * 2048 * 2;
      fragment.rank.tp = t;
      inventory.fragments.push_back(MakePlacementFragment(std::move(fragment)).value());
    }
    inventory.tensors.push_back(std::move(tensor));
  }
  return inventory;
}

StoredManifest Stored(const FragmentInventory& inventory) {
  StoredManifest manifest;
  manifest.namespace_name = "default";
  manifest.resource_id = inventory.resource_id;
  manifest.revision = inventory.revision;
  manifest.group_id = "weights/default/model/r1/0";
  manifest.manifest_key = manifest.group_id + "/manifest";
  manifest.created_at = "2026-01-01T00:00:00Z";
  manifest.tensors = inventory.tensors;
  for (const PlacementFragment& fragment : inventory.fragments) {
    manifest.fragments.push_back(
        {.fragment_id = fragment.placement_fragment_id,
         .tensor_id = fragment.tensor_id,
         .global_offset = fragment.global_offset,
         .local_shape = fragment.local_shape,
         .object_key = manifest.group_id + "/payload/" + fragment.placement_fragment_id,
         .object_offset = 0,
         .nbytes = fragment.nbytes,
         .aliases = {}});
  }
  return manifest;
}

void Args(benchmark::internal::Benchmark* bench) {
  bench->Args({12'500, 8})->Args({37'500, 8})->Args({40'000, 1})->Unit(benchmark::kMillisecond);
}

void BM_MakePlacement(benchmark::State& state) {
  const FragmentInventory inventory = Inventory(state.range(0), state.range(1));
  for (auto _ : state) {
    state.PauseTiming();
    FragmentInventory copy = inventory;
    state.ResumeTiming();
    auto placement = PlacementFromFragments(std::move(copy));
    MC_CHECK(placement.ok());
    state.PauseTiming();
    placement = InvalidArgument("freed outside of the measurement");
    state.ResumeTiming();
  }
}
BENCHMARK(BM_MakePlacement)->Apply(Args);

void BM_PlacementToJson(benchmark::State& state) {
  const auto placement = PlacementFromFragments(Inventory(state.range(0), state.range(1))).value();
  for (auto _ : state) benchmark::DoNotOptimize(PlacementToJson(*placement));
}
BENCHMARK(BM_PlacementToJson)->Apply(Args);

void BM_PlacementFromJson(benchmark::State& state) {
  const std::string text =
      PlacementToJson(*PlacementFromFragments(Inventory(state.range(0), state.range(1))).value());
  for (auto _ : state) MC_CHECK(PlacementFromJson(text).ok());
  state.counters["json_MB"] = static_cast<double>(text.size()) / 1e6;
}
BENCHMARK(BM_PlacementFromJson)->Apply(Args);

void BM_StoredManifestFromJson(benchmark::State& state) {
  const auto manifest =
      MakeStoredManifest(Stored(Inventory(state.range(0), state.range(1)))).value();
  const std::string text = StoredManifestToJson(*manifest);
  for (auto _ : state) MC_CHECK(StoredManifestFromJson(text).ok());
  state.counters["json_MB"] = static_cast<double>(text.size()) / 1e6;
}
BENCHMARK(BM_StoredManifestFromJson)->Apply(Args);

// One participant's views of one allocation, fragment after fragment: docs/performance.md aims at
// 200 ms for 100,000.
void BM_ValidateOneAllocation(benchmark::State& state) {
  const auto placement = PlacementFromFragments(Inventory(state.range(0), 1)).value();
  const PlacementPart& part = placement->parts[0];
  RuntimeBinding binding;
  binding.resource_id = placement->resource_id;
  binding.placement_id = placement->placement_id;
  binding.placement_digest = placement->digest;
  binding.instance_id = "instance";
  binding.lease_id = "lease";
  binding.revision = placement->revision;
  binding.participant_id = part.participant_id;
  constexpr uint64_t kFirst = 1 << 20;
  uint64_t bytes = 0;
  for (const PlacementFragment& fragment : part.fragments) bytes += fragment.nbytes;
  uint64_t offset = 0;
  for (const PlacementFragment& fragment : part.fragments) {
    binding.fragments.push_back(
        {.placement_fragment_id = fragment.placement_fragment_id,
         .fragment_id = fragment.placement_fragment_id,
         .address = kFirst + offset,
         .nbytes = fragment.nbytes,
         .worker_id = "worker",
         .endpoint = "host:1",
         .device = "cuda:0",
         .itemsize = 2,
         .local_shape = fragment.local_shape,
         .strides_bytes = CanonicalStridesBytes(fragment.local_shape, 2).value(),
         .storage_address = kFirst,
         .storage_nbytes = bytes,
         .storage_offset_bytes = offset});
    offset += fragment.nbytes;
  }
  const RuntimeBindingPtr made = MakeRuntimeBinding(std::move(binding)).value();
  for (auto _ : state) MC_CHECK(ValidateRuntimeBinding(*placement, *made).ok());
}
BENCHMARK(BM_ValidateOneAllocation)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Arg(300'000)
    ->Unit(benchmark::kMillisecond);

void BM_ValidateRuntimeBindings(benchmark::State& state) {
  const auto placement = PlacementFromFragments(Inventory(state.range(0), state.range(1))).value();
  std::vector<RuntimeBindingPtr> bindings;
  uint64_t address = 4096;
  for (const PlacementPart& part : placement->parts) {
    RuntimeBinding binding;
    binding.resource_id = placement->resource_id;
    binding.placement_id = placement->placement_id;
    binding.placement_digest = placement->digest;
    binding.instance_id = "instance";
    binding.lease_id = "lease";
    binding.revision = placement->revision;
    binding.participant_id = part.participant_id;
    for (const PlacementFragment& fragment : part.fragments) {
      binding.fragments.push_back(
          {.placement_fragment_id = fragment.placement_fragment_id,
           .fragment_id = fragment.placement_fragment_id,
           .address = address,
           .nbytes = fragment.nbytes,
           .worker_id = "worker",
           .endpoint = "host:1",
           .device = "cpu",
           .itemsize = 2,
           .local_shape = fragment.local_shape,
           .strides_bytes = CanonicalStridesBytes(fragment.local_shape, 2).value(),
           .storage_address = address,
           .storage_nbytes = fragment.nbytes,
           .storage_offset_bytes = 0});
      address += fragment.nbytes;
    }
    bindings.push_back(MakeRuntimeBinding(std::move(binding)).value());
  }
  for (auto _ : state) MC_CHECK(ValidateRuntimeBindings(*placement, bindings).ok());
}
BENCHMARK(BM_ValidateRuntimeBindings)->Apply(Args);

}  // namespace
}  // namespace mooncake::manifest

BENCHMARK_MAIN();
