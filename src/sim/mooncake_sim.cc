// mooncake-sim: runs seeds of the simulation, each perhaps twice, and says what it saw.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/probe.h"
#include "env/clock.h"
#include "sim/scenario.h"

namespace mooncake::sim {
namespace {

struct Flags {
  uint64_t seed = 1;
  uint64_t seeds = 1;
  double minutes = 0;
  int64_t seconds = 20;
  bool once = false;
  bool verbose = false;
  bool json = false;
  std::string bug = "none";
  std::string log = "off";
  std::string trace;
};

struct Totals {
  uint64_t runs = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;
  double virtual_seconds = 0;
  uint64_t turns = 0;
  Workload::Counts counts;
  std::array<uint64_t, kRules> checks{};
  std::map<std::string, uint64_t> faults;
  std::map<std::string, uint64_t> object_outcomes;

  void Add(const ScenarioReport& report) {
    ++runs;
    failed += report.ok() ? 0 : 1;
    refused += report.refused.empty() ? 0 : 1;
    virtual_seconds += report.virtual_seconds;
    turns += report.turns;
    counts.publishes += report.counts.publishes;
    counts.published += report.counts.published;
    counts.loads += report.counts.loads;
    counts.loaded += report.counts.loaded;
    counts.removes += report.counts.removes;
    counts.removed += report.counts.removed;
    for (size_t rule = 0; rule < kRules; ++rule) checks[rule] += report.checks[rule];
    for (const auto& [kind, count] : report.faults) faults[kind] += count;
    for (const auto& [kind, count] : report.object_outcomes) object_outcomes[kind] += count;
  }
};

// The line to paste.
std::string Again(const Flags& flags, uint64_t seed) {
  std::string line = fmt::format("./x sim --seed {}", seed);
  if (flags.seconds != Flags().seconds) line += fmt::format(" --seconds {}", flags.seconds);
  if (flags.bug != "none") line += " --bug " + flags.bug;
  return line;
}

void PrintRun(const ScenarioReport& report) {
  std::printf("seed %lu: %s, trace %016lx, %.1f virtual seconds, %lu turns\n", report.seed,
              report.ok() ? "ok" : "FAILED", report.trace_hash, report.virtual_seconds,
              report.turns);
  const Workload::Counts& counts = report.counts;
  std::printf("  %lu of %lu publishes, %lu of %lu loads, %lu of %lu removals\n", counts.published,
              counts.publishes, counts.loaded, counts.loads, counts.removed, counts.removes);
  for (const auto& [kind, count] : report.faults) {
    std::printf("  %6lu x %s\n", count, kind.c_str());
  }
  for (const auto& [kind, count] : counts.failures) {
    std::printf("  %6lu x %s: %s\n", count, kind.c_str(), counts.examples.at(kind).c_str());
  }
  for (const auto& [kind, count] : report.object_outcomes) {
    std::printf("  %6lu x %s\n", count, kind.c_str());
  }
  if (!report.refused.empty()) {
    std::printf("  the Master refused its damaged log: %s\n", report.refused.c_str());
  }
}

void PrintFailure(const Flags& flags, const ScenarioReport& report) {
  if (report.violation) {
    std::printf("seed %lu breaks %s: %s\n", report.seed,
                std::string(Name(report.violation->rule)).c_str(), report.violation->text.c_str());
  }
  if (!report.stuck.empty()) {
    std::printf("seed %lu is stuck: %s\n", report.seed, report.stuck.c_str());
  }
  std::printf("  again: %s --verbose\n", Again(flags, report.seed).c_str());
}

void PrintTotals(const Totals& totals) {
  const Workload::Counts& counts = totals.counts;
  std::printf(
      "%lu runs, %lu failed, %lu refused a damaged log; %.0f virtual seconds, %lu turns\n"
      "%lu of %lu publishes, %lu of %lu loads, %lu of %lu removals went through\n",
      totals.runs, totals.failed, totals.refused, totals.virtual_seconds, totals.turns,
      counts.published, counts.publishes, counts.loaded, counts.loads, counts.removed,
      counts.removes);
  std::printf("\n%12s  operation on ordinary objects\n", "ended");
  for (const auto& [kind, count] : totals.object_outcomes) {
    std::printf("%12lu  %s\n", count, kind.c_str());
  }
  std::printf("\n%12s  rule\n", "checked");
  for (size_t rule = 1; rule < kRules; ++rule) {
    std::printf(
        "%12lu  %s%s\n", totals.checks[rule], std::string(Name(static_cast<Rule>(rule))).c_str(),
        ArrivesWith(static_cast<Rule>(rule)).empty()
            ? ""
            : fmt::format(" (arrives with {})", ArrivesWith(static_cast<Rule>(rule))).c_str());
  }
  std::printf("\n%12s  fault\n", "happened");
  for (const auto& [kind, count] : totals.faults) {
    std::printf("%12lu  %s\n", count, kind.c_str());
  }
  std::map<std::string, uint64_t> probes;
  for (const Probe* probe : Probe::All()) probes[probe->name()] += probe->hits();
  std::printf("\n%12s  rare path\n", "taken");
  for (const auto& [name, hits] : probes) {
    std::printf("%12lu  %s%s\n", hits, name.c_str(), hits == 0 ? "  NEVER REACHED" : "");
  }
}

nlohmann::json JsonOf(const Flags& flags, const Totals& totals,
                      const std::vector<ScenarioReport>& failures) {
  nlohmann::json json = {{"runs", totals.runs},       {"failed", totals.failed},
                         {"refused", totals.refused}, {"virtual_seconds", totals.virtual_seconds},
                         {"turns", totals.turns},     {"faults", totals.faults}};
  for (size_t rule = 1; rule < kRules; ++rule) {
    json["checks"][std::string(Name(static_cast<Rule>(rule)))] = totals.checks[rule];
  }
  for (const Probe* probe : Probe::All()) json["probes"][probe->name()] = probe->hits();
  json["failures"] = nlohmann::json::array();
  for (const ScenarioReport& report : failures) {
    nlohmann::json failure = {{"seed", report.seed}, {"again", Again(flags, report.seed)}};
    if (report.violation) {
      failure["rule"] = Name(report.violation->rule);
      failure["text"] = report.violation->text;
    }
    if (!report.stuck.empty()) failure["stuck"] = report.stuck;
    json["failures"].push_back(failure);
  }
  return json;
}

int Run(const Flags& flags) {
  ScenarioOptions options;
  options.seconds = flags.seconds;
  for (size_t bug = 0; bug < kPlantedBugs; ++bug) {
    if (Name(static_cast<PlantedBug>(bug)) == flags.bug) options.bug = static_cast<PlantedBug>(bug);
  }
  std::FILE* trace = flags.trace.empty() ? nullptr : std::fopen(flags.trace.c_str(), "w");
  if (trace != nullptr) {
    options.on_note = [trace](std::string_view fact) {
      for (const char c : fact) std::fputc(c < ' ' || c > '~' ? '.' : c, trace);
      std::fputc('\n', trace);
    };
  }
  const env::Clock& clock = env::SystemClock::Instance();
  const int64_t end_ms = clock.MonotonicMs() + static_cast<int64_t>(flags.minutes * 60'000);
  const bool shows_progress =
      !flags.json && !flags.verbose && flags.seeds + (flags.minutes > 0) > 1;
  Totals totals;
  std::vector<ScenarioReport> failures;
  int64_t shown_ms = clock.MonotonicMs();
  for (uint64_t n = 0; flags.minutes > 0 ? clock.MonotonicMs() < end_ms : n < flags.seeds; ++n) {
    options.seed = flags.seed + n;
    ScenarioReport report = RunScenario(options);
    if (!flags.once && report.ok()) {
      if (trace != nullptr) std::fputs("the second time\n", trace);
      const uint64_t second = RunScenario(options).trace_hash;
      if (second != report.trace_hash) {
        report.stuck = fmt::format("not deterministic: trace {:016x}, and {:016x} the second time",
                                   report.trace_hash, second);
      }
    }
    totals.Add(report);
    if (flags.verbose) PrintRun(report);
    if (!report.ok()) {
      if (!flags.json) PrintFailure(flags, report);
      failures.push_back(std::move(report));
    }
    if (shows_progress && clock.MonotonicMs() - shown_ms > 10'000) {
      shown_ms = clock.MonotonicMs();
      std::fprintf(stderr, "  seed %lu, %lu failed\n", options.seed, totals.failed);
    }
    std::fflush(stdout);
  }
  if (trace != nullptr) std::fclose(trace);
  if (flags.json) {
    std::printf("%s\n", JsonOf(flags, totals, failures).dump(2).c_str());
  } else {
    PrintTotals(totals);
  }
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mooncake::sim

int main(int argc, char** argv) {
  mooncake::sim::Flags flags;
  CLI::App app(
      "Runs a whole cluster on one thread under faults, once a seed, and judges what it did.\n"
      "The same seed is the same history; each run is made twice to prove it, unless --once.",
      "mooncake-sim");
  app.footer("Exit status: 0 all runs are right, 1 one is not, 2 bad flags.");
  std::vector<std::string> bugs;
  for (size_t bug = 0; bug < mooncake::sim::kPlantedBugs; ++bug) {
    bugs.emplace_back(Name(static_cast<mooncake::sim::PlantedBug>(bug)));
  }
  app.add_option("--seed", flags.seed, "the first seed")->capture_default_str();
  app.add_option("--seeds", flags.seeds, "how many, one after the other")->capture_default_str();
  app.add_option("--minutes", flags.minutes, "as many seeds as there is time for, instead");
  app.add_option("--seconds", flags.seconds, "virtual time under faults, a run")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_flag("--once", flags.once, "do not run each seed a second time");
  app.add_flag("--verbose", flags.verbose, "what each run did and what went wrong in it");
  app.add_flag("--json", flags.json, "one JSON document");
  app.add_option("--bug", flags.bug, "plant one of the bugs that the judge must see")
      ->capture_default_str()
      ->check(CLI::IsMember(bugs));
  app.add_option("--log", flags.log, "the production code's log: off, error, warning, info, debug")
      ->capture_default_str();
  app.add_option("--trace", flags.trace,
                 "write every fact of the history to this file, of both times");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (const auto level = mooncake::SetLogLevel(flags.log); !level.ok()) {
    std::fprintf(stderr, "mooncake-sim: --log: %s\n", level.message().c_str());
    return 2;
  }
  return mooncake::sim::Run(flags);
}
