// mooncake-master: the Store Master, one process a cluster.
//
// Prints one line to standard output once it serves:
//   mooncake-master listening on <host:port> folder=<folder>
// The address is also in <folder>/address. A restart binds the address that was bound first, so that
// clients and nodes find it again; --listen then only says something when it differs, which is an
// error. SIGTERM and SIGINT end it in order.

#include <signal.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "env/clock.h"
#include "env/file.h"
#include "env/folder_lock.h"
#include "env/random.h"
#include "master/master.h"
#include "master/version.h"
#include "oplog/sqlite_log.h"
#include "rpc/grpc_master_server.h"

namespace {

using namespace mooncake;

constexpr char kLogFile[] = "log.db";
constexpr char kAddressFile[] = "address";
constexpr std::string_view kAddressKey = "bound_address";
constexpr char kAnyPort[] = "127.0.0.1:0";

struct Flags {
  std::string folder;
  std::string listen;  // empty: the address bound first, else any port of the loopback
  std::string config;
  std::string log_level = "info";
  master::MasterOptions options;
};

template <class Enum>
Result<Enum> ByName(const std::string& key, const std::string& name, int last) {
  std::string upper = name;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  for (int i = 1; i <= last; ++i) {
    if (model::Name(static_cast<Enum>(i)) == upper) return static_cast<Enum>(i);
  }
  return InvalidArgument(key + " has no value \"" + name + "\"");
}

Status SetOption(const std::string& key, const YAML::Node& value, master::MasterOptions* options) {
  const std::string text = value.as<std::string>();
  if (key == "default_weight_preferred_residency") {
    MC_ASSIGN_OR_RETURN(options->default_policy.preferred_residency,
                        ByName<model::Residency>(key, text, model::kResidencyMax));
  } else if (key == "default_weight_mixed_hot_ratio") {
    options->default_policy.mixed_hot_ratio = value.as<double>();
  } else if (key == "default_weight_migration_mode") {
    MC_ASSIGN_OR_RETURN(options->default_policy.migration_mode,
                        ByName<model::MigrationMode>(key, text, model::kMigrationModeMax));
  } else if (key == "node_dead_after_ms") {
    options->node_dead_after_ms = value.as<int64_t>();
  } else if (key == "report_interval_ms") {
    options->report_interval_ms = value.as<int64_t>();
  } else if (key == "removal_batch_members") {
    options->removal_batch_members = value.as<uint32_t>();
  } else {
    return InvalidArgument("unknown key \"" + key + "\"");
  }
  return OkStatus();
}

Status ReadConfig(const std::string& path, master::MasterOptions* options) {
  MC_ASSIGN_OR_RETURN(const std::string text, env::ReadFile(path));
  // yaml-cpp reports by exception; none leaves this function.
  try {
    const YAML::Node root = YAML::Load(text);
    if (!root.IsMap()) return InvalidArgument(path + ": expected keys with values");
    for (const auto& entry : root) {
      const Status set = SetOption(entry.first.as<std::string>(), entry.second, options);
      if (!set.ok()) return set.WithContext(path);
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument(path + ": " + error.what());
  }
  return OkStatus();
}

// What to bind: the address of the first start, if there was one.
Result<std::string> ListenAddress(const Flags& flags, oplog::LogStore& log) {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> bound, log.ReadMeta(kAddressKey));
  if (!bound.has_value()) return flags.listen.empty() ? kAnyPort : flags.listen;
  if (!flags.listen.empty() && flags.listen != kAnyPort && flags.listen != *bound) {
    return InvalidArgument("--listen " + flags.listen + ": this store was bound to " + *bound +
                           " first, where its clients look for it");
  }
  return *bound;
}

Status Serve(const Flags& flags, const sigset_t& signals) {
  MC_RETURN_IF_ERROR(env::MakeFolders(flags.folder));
  MC_ASSIGN_OR_RETURN(const env::FolderLock lock, env::FolderLock::Acquire(flags.folder));
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<oplog::SqliteLog> log,
                      oplog::SqliteLog::Open(flags.folder + "/" + kLogFile));
  MC_ASSIGN_OR_RETURN(
      const std::unique_ptr<master::Master> master,
      master::Master::Open(flags.options, {*log, env::SystemClock::Instance(),
                                           env::SystemRandom::Instance()}));
  MC_ASSIGN_OR_RETURN(const std::string listen, ListenAddress(flags, *log));
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::GrpcMasterServer> server,
                      rpc::GrpcMasterServer::Start(listen, *master));
  // Calls wait for the sequencer until the address is on record.
  MC_RETURN_IF_ERROR(log->WriteMeta(kAddressKey, server->address()));
  MC_RETURN_IF_ERROR(env::WriteFileDurably(flags.folder + "/" + kAddressFile,
                                           server->address() + "\n"));
  master->Start();
  std::printf("mooncake-master listening on %s folder=%s\n", server->address().c_str(),
              flags.folder.c_str());
  std::fflush(stdout);
  int received = 0;
  sigwait(&signals, &received);
  Log().info("master: ending on signal {}", received);
  server->Stop();
  master->Stop();
  return log->Close();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"The Store Master of the Mooncake Weight Store: decides and remembers which weight "
               "revisions exist and where they are."};
  app.set_version_flag("--version", "mooncake-master " + std::string(master::Version()));
  app.add_option("--folder", flags.folder, "where the log is kept")->required();
  app.add_option("--listen", flags.listen,
                 "host:port, port 0 for any (default: as at the first start, else 127.0.0.1:0)");
  app.add_option("--config", flags.config,
                 "YAML file: default_weight_preferred_residency, default_weight_mixed_hot_ratio, "
                 "default_weight_migration_mode, node_dead_after_ms, report_interval_ms, "
                 "removal_batch_members");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  Status status = SetLogLevel(flags.log_level);
  if (status.ok() && !flags.config.empty()) status = ReadConfig(flags.config, &flags.options);
  if (!status.ok()) {
    std::fprintf(stderr, "mooncake-master: %s\n", status.ToString().c_str());
    return 2;
  }
  rpc::RouteGrpcLog();
  // Before any thread is made, so that they all leave these to Serve.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  status = Serve(flags, signals);
  if (!status.ok()) {
    std::fprintf(stderr, "mooncake-master: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
