// Planning time of published model shapes:
//   ./x bench plan [--json FILE] [--case NAME]... [--contracts] [--list]
//
// Three tables. Contracts: both placements of a case made once, every fragment id hashed and every
// rule checked, with the memory that takes. Plans: the median of several runs of the source index,
// the plan for all target ranks and the plan for one target rank (the slowest of them all). Every
// plan is made whole, never sampled. Loads: all target ranks load what the source published, with
// each tensor in memory of its own and with one buffer a rank, in the order of tensor ids; how many
// copies the plans' regions are executed as. --contracts leaves plans and loads out.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "manifest/lookup.h"
#include "manifest/validate.h"
#include "reshard/bench_models.h"
#include "reshard/bind.h"
#include "reshard/fusion.h"
#include "reshard/plan.h"
#include "reshard/planner.h"
#include "reshard/upload_plan.h"

namespace mooncake::reshard {
namespace {

struct Case {
  std::string name;
  std::string description;
  std::string target;  // what docs/performance.md aims at
  int runs = 7;
  bool loads = false;
  std::function<manifest::PlacementPtr()> source;
  std::function<manifest::PlacementPtr()> destination;
};

struct Row {
  std::string name;
  std::string target;
  size_t tensors = 0;
  size_t source_fragments = 0;
  size_t target_fragments = 0;
  double build_ms = 0;
  double peak_mib = 0;            // of the whole process while both placements were made
  double bytes_per_fragment = 0;  // what both placements hold
  size_t regions = 0;
  double index_ms = 0;
  double plan_ms = 0;      // all target ranks, from the index
  double balanced_ms = 0;  // the same, reads spread over equal replicas
  double local_ms = 0;     // one target rank, from the index
  double bytes_per_region = 0;
  bool has_loads = false;
  size_t load_regions = 0;
  size_t copies_apart = 0;  // each tensor in memory of its own
  size_t copies_flat = 0;   // one buffer a rank
  double fuse_ms = 0;       // of all ranks with one buffer each
};

std::vector<Case> Cases() {
  const auto qwen = [](const Parallelism& p, bool grouped) {
    return [p, grouped] { return Qwen3MoePlacement(p, grouped); };
  };
  const Parallelism tp4ep4{.tp = 4, .ep = 4, .shared_workers = true};
  const Parallelism tp2pp2ep2{.tp = 2, .pp = 2, .ep = 2, .shared_workers = true};
  const auto blocks = [](int64_t rows, int64_t columns) {
    return [rows, columns] { return BlockedMatrixPlacement(rows, columns); };
  };
  std::vector<Case> cases{
      {"qwen3-moe-235b", "separate experts, TP4/EP4 -> TP2/PP2/EP2 on shared workers", "< 100 ms",
       7, true, qwen(tp4ep4, false), qwen(tp2pp2ep2, false)},
      {"qwen3-moe-235b-grouped", "the same, grouped experts", "< 20 ms", 7, true,
       qwen(tp4ep4, true), qwen(tp2pp2ep2, true)},
      {"dim0-to-dim2", "(32, 8192, 8192), eight ranks each, 2,097,152 runs",
       "<= 64 regions, < 1 ms", 15, false, [] { return CutCubePlacement(0, 8); },
       [] { return CutCubePlacement(2, 8); }},
  };
  for (int64_t side : {50, 100, 200, 300}) {
    const std::string name = "grid-" + std::to_string(side * side);
    cases.push_back({name, "blocks of one matrix to other blocks: growth", "N log N", 5, false,
                     blocks(side, side), blocks(side - 7, side + 5)});
  }
  cases.push_back({"deepseek-v3", "TP4/PP2/EP8/DP2 -> TP8/PP4/EP2/DP4, full grids",
                   "one rank < 20 ms, all < 3 s", 3, false,
                   [] { return DeepSeekV3Placement({.tp = 4, .pp = 2, .ep = 8, .dp = 2}); },
                   [] { return DeepSeekV3Placement({.tp = 8, .pp = 4, .ep = 2, .dp = 4}); }});
  return cases;
}

double MillisecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// From here on the process's peak counts anew; where the kernel refuses, it counts from the start.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << 5; }

// VmHWM of the process; 0 where it cannot be read.
double PeakMib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

size_t AllocatedBytes() {
  const auto all = mallinfo2();
  return all.uordblks + all.hblkhd;
}

struct Contracts {
  manifest::PlacementPtr source;
  manifest::PlacementPtr target;
};

Contracts MakeContracts(const Case& c, Row* row) {
  Contracts made;
  const size_t before = AllocatedBytes();
  ForgetPeak();
  row->build_ms = MillisecondsOf([&] {
    made.source = c.source();
    made.target = c.destination();
  });
  row->peak_mib = PeakMib();
  row->tensors = made.source->tensors.size();
  row->source_fragments = made.source->fragments.size();
  row->target_fragments = made.target->fragments.size();
  row->bytes_per_fragment = static_cast<double>(AllocatedBytes() - before) /
                            static_cast<double>(row->source_fragments + row->target_fragments);
  return made;
}

void MakePlans(const Case& c, const Contracts& contracts, Row* row) {
  const PlanningLimits limits = PlanningLimits::Unexpanded();
  const manifest::PlacementPtr& target = contracts.target;
  const Balance balance;
  std::vector<double> index_ms, plan_ms, balanced_ms;
  std::vector<std::vector<double>> local_ms(target->parts.size());
  for (int run = 0; run < c.runs; ++run) {
    SourceIndexPtr index;
    index_ms.push_back(MillisecondsOf([&] { index = IndexPlacement(contracts.source); }));
    LogicalPlanPtr plan;
    plan_ms.push_back(MillisecondsOf([&] { plan = PlanFromIndex(index, target, limits).value(); }));
    balanced_ms.push_back(
        MillisecondsOf([&] { MC_CHECK(PlanFromIndex(index, target, limits, &balance).ok()); }));
    row->regions = plan->operations().size();
    row->bytes_per_region = static_cast<double>(plan->memory_bytes()) /
                            static_cast<double>(std::max<size_t>(row->regions, 1));
    for (size_t p = 0; p < target->parts.size(); ++p) {
      const manifest::PlacementPart& part = target->parts[p];
      if (part.fragments.empty()) continue;
      local_ms[p].push_back(MillisecondsOf([&] {
        MC_CHECK(PlanFromIndexToLocalTarget(index, target, part.participant_id, limits).ok());
      }));
    }
  }
  row->index_ms = Median(index_ms);
  row->plan_ms = Median(plan_ms);
  row->balanced_ms = Median(balanced_ms);
  for (const std::vector<double>& runs : local_ms) {
    if (!runs.empty()) row->local_ms = std::max(row->local_ms, Median(runs));
  }
}

// A binding of the part to addresses that nothing lies at: copies are counted, never made.
manifest::RuntimeBindingPtr BindNowhere(const manifest::Placement& placement,
                                        const manifest::PlacementPart& part, bool flat) {
  manifest::RuntimeBinding binding;
  binding.resource_id = placement.resource_id;
  binding.placement_id = placement.placement_id;
  binding.placement_digest = placement.digest;
  binding.instance_id = "instance";
  binding.lease_id = "lease";
  binding.revision = placement.revision;
  binding.participant_id = part.participant_id;
  std::vector<const manifest::PlacementFragment*> order;
  uint64_t total = 0;
  for (const manifest::PlacementFragment& fragment : part.fragments) {
    order.push_back(&fragment);
    total += fragment.nbytes;
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::tie(a->tensor_id, a->global_offset) < std::tie(b->tensor_id, b->global_offset);
  });
  constexpr uint64_t kFirst = 1 << 20;
  constexpr uint64_t kApart = 4096;
  uint64_t next = kFirst;
  for (const manifest::PlacementFragment* fragment : order) {
    manifest::RuntimeBindingFragment& bound = binding.fragments.emplace_back();
    bound.placement_fragment_id = fragment->placement_fragment_id;
    bound.fragment_id = fragment->placement_fragment_id;
    bound.address = next;
    bound.nbytes = fragment->nbytes;
    bound.worker_id = bound.endpoint = "worker";
    bound.device = "cpu";
    bound.itemsize = manifest::FindTensor(part.tensors, fragment->tensor_id)->itemsize;
    bound.local_shape = fragment->local_shape;
    bound.strides_bytes =
        manifest::CanonicalStridesBytes(fragment->local_shape, bound.itemsize).value();
    bound.storage_address = flat ? kFirst : next;
    bound.storage_nbytes = flat ? total : fragment->nbytes;
    bound.storage_offset_bytes = next - bound.storage_address;
    next += fragment->nbytes + (flat ? 0 : kApart);
  }
  return manifest::MakeRuntimeBinding(std::move(binding)).value();
}

// By how many copies the part is filled.
size_t CountCopies(const BoundPlan& bound) {
  std::vector<std::vector<ObjectCopy>> of_object(bound.objects().size());
  for (size_t i = 0; i < bound.size(); ++i) {
    of_object[bound.object_of(i)].push_back(CopyOf(bound.operation(i)));
  }
  size_t copies = 0;
  for (std::vector<ObjectCopy>& object : of_object) copies += FuseCopies(std::move(object)).size();
  return copies;
}

void MakeLoads(const Contracts& contracts, Row* row) {
  row->has_loads = true;
  const auto stored =
      BuildStoredManifest(PlanUpload(contracts.source, "group").value(), "bench", "now").value();
  const SourceIndexPtr index = IndexStored(stored);
  for (const manifest::PlacementPart& part : contracts.target->parts) {
    if (part.fragments.empty()) continue;
    const LogicalPlanPtr plan =
        PlanFromIndexToLocalTarget(index, contracts.target, part.participant_id,
                                   PlanningLimits::Unexpanded())
            .value();
    row->load_regions += plan->operations().size();
    for (const bool flat : {false, true}) {
      const BoundPlanPtr bound =
          BindStoredToLocalTarget(plan, *BindNowhere(*contracts.target, part, flat)).value();
      size_t copies = 0;
      const double ms = MillisecondsOf([&] { copies = CountCopies(*bound); });
      (flat ? row->copies_flat : row->copies_apart) += copies;
      if (flat) row->fuse_ms += ms;
    }
  }
}

void PrintLoads(const std::vector<Row>& rows) {
  std::printf("\n%-24s %9s %14s %14s %9s\n", "loads", "regions", "copies, apart", "copies, flat",
              "fuse ms");
  for (const Row& row : rows) {
    if (!row.has_loads) continue;
    std::printf("%-24s %9zu %14zu %14zu %9.2f\n", row.name.c_str(), row.load_regions,
                row.copies_apart, row.copies_flat, row.fuse_ms);
  }
}

void PrintContracts(const std::vector<Row>& rows) {
  std::printf("%-24s %8s %9s %9s %10s %9s %10s\n", "contracts", "tensors", "source", "target",
              "build ms", "peak MiB", "B/fragment");
  for (const Row& row : rows) {
    std::printf("%-24s %8zu %9zu %9zu %10.1f %9.0f %10.1f\n", row.name.c_str(), row.tensors,
                row.source_fragments, row.target_fragments, row.build_ms, row.peak_mib,
                row.bytes_per_fragment);
  }
}

void PrintPlans(const std::vector<Row>& rows) {
  std::printf("\n%-24s %9s %9s %9s %9s %10s %8s  %s\n", "plans", "regions", "index ms", "all ms",
              "balanced", "one rank", "B/region", "target");
  for (const Row& row : rows) {
    std::printf("%-24s %9zu %9.2f %9.2f %9.2f %10.2f %8.1f  %s\n", row.name.c_str(), row.regions,
                row.index_ms, row.plan_ms, row.balanced_ms, row.local_ms, row.bytes_per_region,
                row.target.c_str());
  }
}

bool WriteJson(const std::string& path, const std::vector<Row>& rows) {
  std::ofstream out(path);
  out << "{\"benchmark\": \"plan\", \"rows\": [";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    out << (i == 0 ? "\n" : ",\n") << "  {\"case\": \"" << r.name
        << "\", \"tensors\": " << r.tensors << ", \"source_fragments\": " << r.source_fragments
        << ", \"target_fragments\": " << r.target_fragments << ", \"build_ms\": " << r.build_ms
        << ", \"peak_mib\": " << r.peak_mib << ", \"bytes_per_fragment\": " << r.bytes_per_fragment
        << ", \"regions\": " << r.regions << ", \"index_ms\": " << r.index_ms
        << ", \"load_regions\": " << r.load_regions << ", \"copies_apart\": " << r.copies_apart
        << ", \"copies_flat\": " << r.copies_flat << ", \"plan_ms\": " << r.plan_ms
        << ", \"balanced_ms\": " << r.balanced_ms << ", \"one_rank_ms\": " << r.local_ms
        << ", \"bytes_per_region\": " << r.bytes_per_region << ", \"target\": \"" << r.target
        << "\"}";
  }
  out << "\n]}\n";
  return static_cast<bool>(out.flush());
}

int Main(int argc, char** argv) {
  std::string json;
  std::vector<std::string> wanted;
  bool contracts_alone = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (argument == "--case" && i + 1 < argc) {
      wanted.push_back(argv[++i]);
    } else if (argument == "--contracts") {
      contracts_alone = true;
    } else if (argument == "--list") {
      for (const Case& c : Cases())
        std::printf("%-24s %s\n", c.name.c_str(), c.description.c_str());
      return 0;
    } else {
      std::printf("usage: plan_bench [--json FILE] [--case NAME]... [--contracts] [--list]\n");
      return argument == "--help" ? 0 : 2;
    }
  }
  std::vector<Row> rows;
  for (const Case& c : Cases()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), c.name) == wanted.end())
      continue;
    Row& row = rows.emplace_back();
    row.name = c.name;
    row.target = c.target;
    const Contracts contracts = MakeContracts(c, &row);
    if (contracts_alone) continue;
    MakePlans(c, contracts, &row);
    if (c.loads) MakeLoads(contracts, &row);
  }
  PrintContracts(rows);
  if (!contracts_alone) {
    PrintPlans(rows);
    PrintLoads(rows);
  }
  if (!json.empty() && !WriteJson(json, rows)) {
    std::fprintf(stderr, "cannot write %s\n", json.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace mooncake::reshard

int main(int argc, char** argv) { return mooncake::reshard::Main(argc, argv); }
