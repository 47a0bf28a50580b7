#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/log.h"
#include "sim/scenario.h"

int main(int argc, char** argv) {
  using namespace mooncake;
  sim::ScenarioOptions options;
  uint64_t seeds = 1;
  bool verbose = false;
  std::string level = "off";
  CLI::App app("sim");
  app.add_option("--seed", options.seed);
  app.add_option("--seeds", seeds);
  app.add_option("--seconds", options.seconds);
  app.add_option("--log", level);
  app.add_flag("--verbose", verbose);
  std::string trace;
  app.add_option("--trace", trace);
  CLI11_PARSE(app, argc, argv);
  (void)SetLogLevel(level);
  int failed = 0;
  std::FILE* file = trace.empty() ? nullptr : std::fopen(trace.c_str(), "w");
  if (file) options.on_note = [file](std::string_view fact) { for (char c : fact) std::fputc(c < 32 || c > 126 ? '.' : c, file); std::fputc('\n', file); };
  for (uint64_t i = 0; i < seeds; ++i) {
    const auto report = sim::RunScenario(options);
    std::printf("seed %lu: hash %016lx, %.1f s, %lu turns, %lu/%lu pub %lu/%lu load %lu/%lu rm%s\n", options.seed,
                report.trace_hash, report.virtual_seconds, report.turns, report.counts.published,
                report.counts.publishes, report.counts.loaded, report.counts.loads,
                report.counts.removed, report.counts.removes, report.refused.empty() ? "" : (" refused: " + report.refused).c_str());
    if (report.violation) std::printf("  VIOLATION %s: %s\n", std::string(sim::Name(report.violation->rule)).c_str(), report.violation->text.c_str());
    if (!report.stuck.empty()) std::printf("  STUCK %s\n", report.stuck.c_str());
    if (verbose) { for (const auto& [k, n] : report.counts.failures) std::printf("    %s x %lu: %s\n", k.c_str(), n, report.counts.examples.at(k).c_str()); for (const auto& [k, n] : report.faults) std::printf("    %s x %lu\n", k.c_str(), n); }
    if (!report.ok()) ++failed;
    std::fflush(stdout);
    ++options.seed;
  }
  return failed > 0;
}
