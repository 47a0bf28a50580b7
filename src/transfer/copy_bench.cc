// ./x bench copy: the copy engine against memcpy and plain non-temporal copies of the same bytes,
// in the same run, with the same threads.
//
// The source is a memfd mapped shared, as a reader's arena is; the target is private memory, as a
// tensor is. All memory is touched before the first measurement. In each round every contender runs
// once, beginning with another one each time; figures are medians over the rounds, and the ratio is
// the median of the rounds' own ratios to the baseline with the best median.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "env/mapping.h"
#include "env/memory_file.h"
#include "transfer/copy_engine.h"
#include "transfer/copy_kernels.h"

namespace mooncake::transfer {
namespace {

struct Settings {
  uint64_t mib = 1024;
  int rounds = 9;
  int threads_max = 2;
  bool huge_pages = false;
  std::string json;
  std::string only;
};

// A run of `bytes` at `source` goes to `target`.
using CopyRun = void (*)(std::byte* target, const std::byte* source, uint64_t bytes);

void PlainRun(std::byte* target, const std::byte* source, uint64_t bytes) {
  std::memcpy(target, source, bytes);
}

#if defined(__x86_64__)
// Whole lines only: what a hand-written streaming loop does.
__attribute__((target("avx512f"))) void Stream512(std::byte* target, const std::byte* source,
                                                  uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_loadu_si512(source + i));
  }
}
__attribute__((target("avx2"))) void Stream256(std::byte* target, const std::byte* source,
                                               uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 32) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i)));
  }
}
// The same with the source asked for one page ahead: the fastest plain copy that we know.
__attribute__((target("avx512f"))) void StreamAhead512(std::byte* target, const std::byte* source,
                                                       uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(source + i + 4096, _MM_HINT_T1);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_loadu_si512(source + i));
  }
}
__attribute__((target("avx2"))) void StreamAhead256(std::byte* target, const std::byte* source,
                                                    uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(source + i + 4096, _MM_HINT_T1);
    for (uint64_t half = i; half < i + 64; half += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(target + half),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + half)));
    }
  }
}
CopyRun StreamRun() { return __builtin_cpu_supports("avx512f") ? Stream512 : Stream256; }
CopyRun StreamAheadRun() {
  return __builtin_cpu_supports("avx512f") ? StreamAhead512 : StreamAhead256;
}
bool HasStreams() { return __builtin_cpu_supports("avx2"); }
#else
CopyRun StreamRun() { return PlainRun; }
CopyRun StreamAheadRun() { return PlainRun; }
bool HasStreams() { return false; }
#endif

// Splits 0..units evenly and runs each share on a thread of its own.
void OnThreads(int threads, uint64_t units, const std::function<void(uint64_t, uint64_t)>& share) {
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&, i] {
      share(units * i / threads, units * (i + 1) / threads);
      FenceStreams();
    });
  }
  share(0, units / threads);
  FenceStreams();
  for (std::thread& other : others) other.join();
}

struct Contender {
  std::string name;
  std::function<void()> run;
};

struct Case {
  std::string name;
  int threads = 1;
  uint64_t bytes = 0;
  double target_ratio = 0;  // 0: none
  Contender ours;
  std::vector<Contender> baselines;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(std::move(settings)) {
    fmt::print("kernels {}, {} MiB, {} rounds, {} pages\n", KernelsOfThisCpu().name, settings_.mib,
               settings_.rounds, settings_.huge_pages ? "huge" : "small");
    fmt::print("{:<38}{:>8}{:>10}  {:<16}{:>10}{:>8}{:>8}\n", "case", "threads", "ours GB/s",
               "best baseline", "GB/s", "ratio", "target");
  }

  void Run(const Case& c) {
    if (!settings_.only.empty() && c.name.find(settings_.only) == std::string::npos) return;
    std::vector<const Contender*> all = {&c.ours};
    for (const Contender& baseline : c.baselines) all.push_back(&baseline);
    std::vector<std::vector<double>> seconds(all.size());
    for (int round = -1; round < settings_.rounds; ++round) {
      for (size_t i = 0; i < all.size(); ++i) {
        const size_t turn = (i + static_cast<size_t>(round + 1)) % all.size();
        const auto begin = std::chrono::steady_clock::now();
        all[turn]->run();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (round >= 0) seconds[turn].push_back(took.count());
      }
    }
    Report(c, seconds);
  }

  void WriteJson() const {
    if (settings_.json.empty()) return;
    std::ofstream(settings_.json) << nlohmann::json{{"benchmark", "copy"},
                                                    {"kernels", KernelsOfThisCpu().name},
                                                    {"mib", settings_.mib},
                                                    {"rounds", settings_.rounds},
                                                    {"huge_pages", settings_.huge_pages},
                                                    {"results", results_}}
                                         .dump(2)
                                  << "\n";
  }

 private:
  void Report(const Case& c, const std::vector<std::vector<double>>& seconds) {
    const auto gb_per_s = [&](size_t i) { return 1e-9 * c.bytes / Median(seconds[i]); };
    size_t best = 1;
    nlohmann::json baselines;
    for (size_t i = 1; i < seconds.size(); ++i) {
      if (gb_per_s(i) > gb_per_s(best)) best = i;
      baselines[c.baselines[i - 1].name] = gb_per_s(i);
    }
    std::vector<double> ratios;
    for (size_t round = 0; round < seconds[0].size(); ++round) {
      ratios.push_back(seconds[best][round] / seconds[0][round]);
    }
    const double ratio = Median(ratios);
    fmt::print("{:<38}{:>8}{:>10.2f}  {:<16}{:>10.2f}{:>8.2f}{:>8}\n", c.name, c.threads,
               gb_per_s(0), c.baselines[best - 1].name, gb_per_s(best), ratio,
               c.target_ratio > 0 ? fmt::format("{:.2f}", c.target_ratio) : "-");
    std::fflush(stdout);
    results_.push_back({{"case", c.name},
                        {"threads", c.threads},
                        {"bytes", c.bytes},
                        {"ours_gb_per_s", gb_per_s(0)},
                        {"baselines_gb_per_s", baselines},
                        {"best_baseline", c.baselines[best - 1].name},
                        {"ratio", ratio},
                        {"target_ratio", c.target_ratio}});
  }

  Settings settings_;
  nlohmann::json results_ = nlohmann::json::array();
};

struct Memory {
  env::Mapping source;
  env::Mapping target;
};

void Must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.ToString());
  std::exit(1);
}

Memory MakeMemory(const Settings& settings) {
  const uint64_t bytes = settings.mib << 20;
  const env::MapOptions options{.populate = true, .huge_pages = settings.huge_pages};
  auto file = env::MemoryFile::CreateAnonymous("copy_bench", bytes);
  Must(file.status());
  auto source = file->Map(env::MapAccess::kReadWrite, options);
  // The target has room for a start off a line's boundary.
  auto target = env::Mapping::Anonymous(bytes + 4096, options);
  Must(source.status());
  Must(target.status());
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(source->data() + i, &word, sizeof word);
  }
  std::memset(target->data(), 1, target->size());
  return {std::move(*source), std::move(*target)};
}

// Plain copies of one contiguous range.
std::vector<Contender> ContiguousBaselines(const Memory& memory, int threads, uint64_t bytes) {
  std::vector<Contender> baselines;
  const auto add = [&](const char* name, CopyRun run) {
    baselines.push_back({name, [&memory, threads, bytes, run] {
                           OnThreads(threads, bytes / 4096, [&](uint64_t begin, uint64_t end) {
                             run(memory.target.data() + begin * 4096,
                                 memory.source.data() + begin * 4096, (end - begin) * 4096);
                           });
                         }});
  };
  add("memcpy", PlainRun);
  if (HasStreams()) {
    add("stream", StreamRun());
    add("stream ahead", StreamAheadRun());
  }
  return baselines;
}

void RunContiguous(Bench* bench, const Memory& memory, int threads) {
  const uint64_t bytes = memory.source.size();
  CopyEngine engine({.threads = threads});
  const std::vector<Contender> baselines = ContiguousBaselines(memory, threads, bytes);
  const StridedCopy whole{
      .source = memory.source.data(), .target = memory.target.data(), .inner_bytes = bytes};
  const std::vector<PayloadWrite> write = {
      {.target = memory.target.data(),
       .sources = {{.data = memory.source.data(), .inner_bytes = bytes}}}};
  std::vector<PayloadWrite> fingerprint = write;
  fingerprint[0].target = nullptr;
  const auto digests = engine.WritePayloads(fingerprint);
  Must(digests.status());
  const auto read_to = [&](uint64_t offset) {
    return ObjectRead{.name = "bench",
                      .data = memory.source.data(),
                      .bytes = bytes,
                      .digests = (*digests)[0],
                      .regions = {{.target = memory.target.data() + offset, .inner_bytes = bytes}}};
  };
  const ObjectRead read = read_to(0);
  const ObjectRead odd_read = read_to(8);

  bench->Run({.name = "contiguous copy",
              .threads = threads,
              .bytes = bytes,
              .target_ratio = 0.9,
              .ours = {"copy",
                       [&] {
                         Must(engine.Copy({&whole, 1}));
                       }},
              .baselines = baselines});
  bench->Run({.name = "contiguous verified read",
              .threads = threads,
              .bytes = bytes,
              .target_ratio = 0.75,
              .ours = {"read",
                       [&] {
                         Must(engine.ReadObjects({&read, 1}, Verify::kBlocks));
                       }},
              .baselines = baselines});
  bench->Run({.name = "contiguous verified read, target + 8",
              .threads = threads,
              .bytes = bytes,
              .target_ratio = 0.75,
              .ours = {"read",
                       [&] {
                         Must(engine.ReadObjects({&odd_read, 1}, Verify::kBlocks));
                       }},
              .baselines = baselines});
  bench->Run({.name = "contiguous write with digests",
              .threads = threads,
              .bytes = bytes,
              .target_ratio = 0.75,
              .ours = {"write", [&] { Must(engine.WritePayloads(write).status()); }},
              .baselines = baselines});
  bench->Run({.name = "fingerprint only",
              .threads = threads,
              .bytes = bytes,
              .ours = {"hash", [&] { Must(engine.WritePayloads(fingerprint).status()); }},
              .baselines = baselines});
}

// A two-dimensional cut: `runs` runs of `run` bytes; pitches in bytes.
struct Cut {
  std::string name;
  uint64_t run = 0;
  uint64_t runs = 0;
  uint64_t source_pitch = 0;
  uint64_t target_pitch = 0;
};

template <uint64_t kRun>
void FixedRun(std::byte* target, const std::byte* source, uint64_t) {
  std::memcpy(target, source, kRun);
}

// memcpy of a size that the compiler knows, as a tuned loop would have it.
CopyRun TunedRun(uint64_t run) {
  switch (run) {
    case 64:
      return FixedRun<64>;
    case 128:
      return FixedRun<128>;
    case 256:
      return FixedRun<256>;
    default:
      return PlainRun;
  }
}

std::vector<Contender> StridedBaselines(const Memory& memory, int threads, const Cut& cut) {
  std::vector<Contender> baselines;
  const auto add = [&](const char* name, CopyRun run) {
    baselines.push_back({name, [&memory, threads, cut, run] {
                           OnThreads(threads, cut.runs, [&](uint64_t begin, uint64_t end) {
                             for (uint64_t i = begin; i < end; ++i) {
                               run(memory.target.data() + i * cut.target_pitch,
                                   memory.source.data() + i * cut.source_pitch, cut.run);
                             }
                           });
                         }});
  };
  add("memcpy a run", TunedRun(cut.run));
  if (HasStreams()) add("stream a run", StreamRun());
  return baselines;
}

void RunStrided(Bench* bench, const Memory& memory, int threads, const Cut& cut, double target) {
  const uint64_t bytes = cut.run * cut.runs;
  CopyEngine engine({.threads = threads});
  const StridedCopy copy{.source = memory.source.data(),
                         .target = memory.target.data(),
                         .inner_bytes = cut.run,
                         .loops = 1,
                         .counts = {cut.runs},
                         .source_strides = {static_cast<int64_t>(cut.source_pitch)},
                         .target_strides = {static_cast<int64_t>(cut.target_pitch)}};
  const std::vector<Contender> baselines = StridedBaselines(memory, threads, cut);
  bench->Run({.name = cut.name,
              .threads = threads,
              .bytes = bytes,
              .target_ratio = target,
              .ours = {"copy",
                       [&] {
                         Must(engine.Copy({&copy, 1}));
                       }},
              .baselines = baselines});

  const uint64_t object = memory.source.size();
  const std::vector<PayloadWrite> fingerprint = {
      {.sources = {{.data = memory.source.data(), .inner_bytes = object}}}};
  const auto digests = engine.WritePayloads(fingerprint);
  Must(digests.status());
  const ObjectRead read{.name = "bench",
                        .data = memory.source.data(),
                        .bytes = object,
                        .digests = (*digests)[0],
                        .regions = {{.target = memory.target.data(),
                                     .inner_bytes = cut.run,
                                     .loops = 1,
                                     .counts = {cut.runs},
                                     .source_strides = {cut.source_pitch},
                                     .target_strides = {static_cast<int64_t>(cut.target_pitch)}}}};
  bench->Run({.name = cut.name + ", verified",
              .threads = threads,
              .bytes = bytes,
              .ours = {"read",
                       [&] {
                         Must(engine.ReadObjects({&read, 1}, Verify::kBlocks));
                       }},
              .baselines = baselines});
  if (cut.target_pitch != cut.run) return;
  const std::vector<PayloadWrite> write = {
      {.target = memory.target.data(),
       .sources = {{.data = memory.source.data(),
                    .inner_bytes = cut.run,
                    .loops = 1,
                    .counts = {cut.runs},
                    .strides = {static_cast<int64_t>(cut.source_pitch)}}}}};
  bench->Run({.name = cut.name + ", written",
              .threads = threads,
              .bytes = bytes,
              .ours = {"write", [&] { Must(engine.WritePayloads(write).status()); }},
              .baselines = baselines});
}

void RunAll(const Settings& settings) {
  const Memory memory = MakeMemory(settings);
  const uint64_t bytes = memory.source.size();
  Bench bench(settings);
  for (int threads = 1; threads <= settings.threads_max; threads *= 2) {
    RunContiguous(&bench, memory, threads);
    // The cut from the first to the last dimension: each source holds whole rows, of which a target
    // takes a quarter.
    const uint64_t many = 2'097'152;
    const uint64_t run = bytes / many / 4;
    RunStrided(&bench, memory, threads,
               {.name = fmt::format("2,097,152 runs of {} B", run),
                .run = run,
                .runs = many,
                .source_pitch = 4 * run,
                .target_pitch = run},
               0.8);
    for (const uint64_t size : {64u, 256u, 1024u, 4096u, 16'384u, 65'536u}) {
      RunStrided(&bench, memory, threads,
                 {.name = fmt::format("gather runs of {} B", size),
                  .run = size,
                  .runs = bytes / (2 * size),
                  .source_pitch = 2 * size,
                  .target_pitch = size},
                 0.8);
      RunStrided(&bench, memory, threads,
                 {.name = fmt::format("scatter runs of {} B", size),
                  .run = size,
                  .runs = bytes / (2 * size),
                  .source_pitch = size,
                  .target_pitch = 2 * size},
                 0.8);
    }
  }
  bench.WriteJson();
}

}  // namespace
}  // namespace mooncake::transfer

int main(int argc, char** argv) {
  mooncake::transfer::Settings settings;
  CLI::App app("The copy engine against memcpy and plain non-temporal copies");
  app.add_option("--mib", settings.mib, "Size of the source")->check(CLI::Range(512, 1 << 20));
  app.add_option("--rounds", settings.rounds, "Rounds measured per case")
      ->check(CLI::Range(7, 999));
  app.add_option("--threads", settings.threads_max, "Run with 1, 2, 4 ... up to this many threads");
  app.add_flag("--huge-pages", settings.huge_pages, "Ask for huge pages");
  app.add_option("--only", settings.only, "Run only the cases whose name holds this text");
  app.add_option("--json", settings.json, "Also write the results to this file");
  CLI11_PARSE(app, argc, argv);
  mooncake::transfer::RunAll(settings);
  return 0;
}
