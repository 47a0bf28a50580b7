// mooncake-master: the Store Master as a program.
//
// Prints one line to standard output once it serves:
//   mooncake-master listening on <host:port> folder=<folder>[ admin=<URL>]
// and writes the same address to <folder>/address, the URL to <folder>/admin_url. A restart binds
// the address it had before (clients and nodes go on knowing it) unless --listen names another
// port. SIGTERM and SIGINT end it in order; with --token-file, SIGHUP has that file read again (a
// change is noticed anyway). Exit status: 0 ended so, 1 failed, 2 bad flags or configuration, 3 the
// folder or the address is taken.

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "admin/admin_server.h"
#include "apps/master_config.h"
#include "base/log.h"
#include "base/tls.h"
#include "env/clock.h"
#include "env/file.h"
#include "env/folder_lock.h"
#include "env/guarded_file.h"
#include "env/random.h"
#include "master/master.h"
#include "master/version.h"
#include "oplog/log_folder.h"
#include "rpc/grpc_master_server.h"
#include "rpc/token_file.h"

namespace {

using namespace mooncake;

constexpr int kFailed = 1;
constexpr int kBadUse = 2;
constexpr int kTaken = 3;

// In the log's meta table; the file of the same name is for scripts.
constexpr std::string_view kAddressKey = "bound_address";
// A process that was stopped or starved counts at most this much of the time: clients and nodes,
// who could not reach it, lose nothing.
constexpr int64_t kPauseToleranceMs = 1'000;
constexpr uint64_t kPemBytesMax = 4 << 20;

struct Flags {
  std::string config;
  std::map<std::string, std::string> keys;  // set on the command line
};

int Report(const Status& status, int code) {
  std::fprintf(stderr, "mooncake-master: %s\n", status.ToString().c_str());
  return code;
}

// SIGHUP among them only where it means something; otherwise it ends the program as it always does.
sigset_t SignalsOf(const apps::MasterConfig& config) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (!config.token_file.empty()) sigaddset(&signals, SIGHUP);
  return signals;
}

// The port that `listen` leaves to the system is the recorded one, if there is any.
Result<std::string> AddressToBind(const std::string& listen, oplog::LogStore& log) {
  constexpr std::string_view kAnyPort = ":0";
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> recorded, log.ReadMeta(kAddressKey));
  if (!recorded || !listen.ends_with(kAnyPort)) return listen;
  const size_t colon = recorded->rfind(':');
  if (colon == std::string::npos) {
    return Corrupt(fmt::format("the recorded address \"{}\" has no port", *recorded));
  }
  return listen.substr(0, listen.size() - kAnyPort.size()) + recorded->substr(colon);
}

// What the configuration's files say; `tokens` keeps the token file for the server.
Result<rpc::ServerSecurity> ReadSecurity(const apps::MasterConfig& config,
                                         std::unique_ptr<rpc::TokenFile>* tokens) {
  rpc::ServerSecurity security;
  if (!config.token_file.empty()) {
    MC_ASSIGN_OR_RETURN(*tokens, rpc::TokenFile::Open(config.token_file));
    security.tokens = tokens->get();
  }
  if (config.tls_cert.empty()) return security;
  MC_ASSIGN_OR_RETURN(security.tls_cert_pem, env::ReadFile(config.tls_cert, kPemBytesMax));
  MC_ASSIGN_OR_RETURN(env::GuardedFile key,
                      env::ReadGuardedFile(config.tls_key, env::Guard::kReading, kPemBytesMax));
  security.tls_key_pem = std::move(key.content);
  MC_RETURN_IF_ERROR(
      CheckTlsIdentity(security.tls_cert_pem, security.tls_key_pem)
          .WithContext("tls_cert " + config.tls_cert + ", tls_key " + config.tls_key));
  if (const std::string why = WhyNotValidNow(security.tls_cert_pem); !why.empty()) {
    Log().warn("master: nobody will accept the certificate {}: {}", config.tls_cert, why);
  }
  if (config.tls_client_ca.empty()) return security;
  MC_ASSIGN_OR_RETURN(security.tls_client_ca_pem,
                      env::ReadFile(config.tls_client_ca, kPemBytesMax));
  MC_RETURN_IF_ERROR(CheckTlsAuthorities(security.tls_client_ca_pem)
                         .WithContext("tls_client_ca " + config.tls_client_ca));
  return security;
}

Result<std::unique_ptr<rpc::GrpcMasterServer>> Listen(const std::string& listen,
                                                      oplog::LogStore& log, master::Master& master,
                                                      const rpc::ServerSecurity& security) {
  MC_ASSIGN_OR_RETURN(const std::string address, AddressToBind(listen, log));
  Result<std::unique_ptr<rpc::GrpcMasterServer>> server =
      rpc::GrpcMasterServer::Start(address, master, security);
  if (!server.ok() && address != listen) {
    return server.status().WithContext(
        "this is the address that clients and nodes know; end what uses it, or give --listen "
        "another port");
  }
  return server;
}

// Only what differs is written: a restart needs no space on the disk.
Status RecordAddress(const std::string& folder, const std::string& address, oplog::LogStore& log) {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> recorded, log.ReadMeta(kAddressKey));
  if (recorded != address) MC_RETURN_IF_ERROR(log.WriteMeta(kAddressKey, address));
  const std::string path = folder + "/address";
  const Result<std::string> written = env::ReadFile(path, 4096);
  if (written.ok() && *written == address + "\n") return OkStatus();
  return env::WriteFileDurably(path, address + "\n");
}

// nullptr: not asked for.
Result<std::unique_ptr<admin::AdminServer>> StartAdmin(const apps::MasterConfig& config,
                                                       rpc::TokenFile* tokens,
                                                       master::Master& master) {
  const std::string path = config.folder + "/admin_url";
  if (!config.http_port) {
    MC_RETURN_IF_ERROR(env::RemoveFile(path));
    return std::unique_ptr<admin::AdminServer>();
  }
  const admin::AdminOptions options{
      .listen = fmt::format("{}:{}", config.http_host, *config.http_port),
      .tokens = tokens,
      .tls_cert = config.tls_cert,
      .tls_key = config.tls_key,
      .tls_client_ca = config.tls_client_ca};
  MC_ASSIGN_OR_RETURN(std::unique_ptr<admin::AdminServer> server,
                      admin::AdminServer::Start(options, master));
  MC_RETURN_IF_ERROR(env::WriteFileDurably(path, server->url() + "\n"));
  return server;
}

// Until a signal ends it.
Status Serve(const apps::MasterConfig& config, const sigset_t& signals, int* exit_code) {
  // Before the log is opened: a mistake here changes nothing.
  std::unique_ptr<rpc::TokenFile> tokens;
  const Result<rpc::ServerSecurity> security = ReadSecurity(config, &tokens);
  if (!security.ok()) {
    *exit_code = kBadUse;
    return security.status();
  }
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<oplog::LogFolder> files,
                      oplog::LogFolder::Open(config.folder));
  oplog::SqliteLog* const log = &files->log();
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<master::Master> master,
                      master::Master::Open(
                          config.options, {*log,
                                           env::SystemClock::Instance(),
                                           env::SystemRandom::Instance(),
                                           {.snapshots = &files->snapshots(), .open_log = [&files] {
                                              return files->OpenReader();
                                            }}}));
  // Before anybody can ask; the log is still this thread's.
  Result<std::unique_ptr<rpc::GrpcMasterServer>> started =
      Listen(config.listen, *log, *master, *security);
  if (!started.ok()) {
    *exit_code = started.status().code() == Code::kUnavailable ? kTaken : kFailed;
    return started.status();
  }
  const std::unique_ptr<rpc::GrpcMasterServer> server = *std::move(started);
  MC_RETURN_IF_ERROR(RecordAddress(config.folder, server->address(), *log));
  Result<std::unique_ptr<admin::AdminServer>> monitored = StartAdmin(config, tokens.get(), *master);
  if (!monitored.ok()) {
    *exit_code = monitored.status().code() == Code::kUnavailable ? kTaken : kFailed;
    return monitored.status().WithContext("--http-port");
  }
  const std::unique_ptr<admin::AdminServer> admin_server = *std::move(monitored);
  master->Start();
  std::printf("mooncake-master listening on %s folder=%s%s\n", server->address().c_str(),
              config.folder.c_str(), admin_server ? (" admin=" + admin_server->url()).c_str() : "");
  std::fflush(stdout);
  int signal = 0;
  while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) (void)tokens->Reload();  // it logs
  Log().info("master: ends on signal {}", signal);
  if (admin_server) admin_server->Stop();
  server->Stop();
  master->Stop();
  return log->Close();
}

Status Configure(const Flags& flags, apps::MasterConfig* config) {
  if (!flags.config.empty()) {
    MC_ASSIGN_OR_RETURN(const std::string yaml, env::ReadFile(flags.config, 1 << 20));
    MC_RETURN_IF_ERROR(apps::ApplyYaml(yaml, config).WithContext(flags.config));
  }
  for (const auto& [key, value] : flags.keys) {
    MC_RETURN_IF_ERROR(apps::ApplyKey(key, value, config));
  }
  MC_RETURN_IF_ERROR(apps::Validate(*config));
  return SetLogLevel(config->log_level);
}

// --report-interval-ms for report_interval_ms.
void AddKey(CLI::App& app, Flags& flags, const std::string& key, const std::string& help) {
  std::string flag = "--" + key;
  for (char& c : flag) c = c == '_' ? '-' : c;
  app.add_option_function<std::string>(
      flag, [&flags, key](const std::string& value) { flags.keys[key] = value; }, help);
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", "mooncake-master " + std::string(master::Version()));
  app.footer(
      "Every key of --config is a flag, too. A flag wins over the file.\n"
      "Exit status: 0 ended by SIGTERM or SIGINT, 1 failed, 2 bad flags or configuration, "
      "3 the folder or the address is taken.");
  app.add_option("--config", flags.config, "YAML file");
  AddKey(app, flags, "folder", "where the log is kept (required)");
  AddKey(app, flags, "listen",
         "host:port; port 0: the one it had before, else the system's choice [127.0.0.1:0]");
  AddKey(app, flags, "log_level", "trace, debug, info, warning, error or off [info]");
  AddKey(app, flags, "http_port",
         "where /metrics and /status are served; 0: the system's choice [nowhere]");
  AddKey(app, flags, "http_host", "on which of this host's addresses [127.0.0.1]");
  AddKey(app, flags, "token_file", "whose tokens are asked for; made by `mooncake tokens new`");
  AddKey(app, flags, "tls_cert", "PEM of the certificate: the port speaks TLS");
  AddKey(app, flags, "tls_key", "PEM of its key");
  AddKey(app, flags, "tls_client_ca", "PEM: every caller needs a certificate that it signed");
  app.add_flag_callback(
      "--insecure", [&flags] { flags.keys["insecure"] = "true"; },
      "serve other hosts than this one without tokens or without TLS");
  AddKey(app, flags, "default_weight_preferred_residency", "hot, cold or mixed [mixed]");
  AddKey(app, flags, "default_weight_mixed_hot_ratio", "0 < ratio < 1 [0.5]");
  AddKey(app, flags, "default_weight_migration_mode", "pinned, manual or auto [auto]");
  AddKey(app, flags, "report_interval_ms", "how often nodes report [500]");
  AddKey(app, flags, "node_dead_after_ms", "silence after which a node counts as dead [3000]");
  AddKey(app, flags, "lease_ttl_min_ms", "shortest lease a reader may ask for [10]");
  AddKey(app, flags, "lease_ttl_max_ms", "longest [3600000]");
  AddKey(app, flags, "import_ttl_min_ms", "shortest lease a publisher may ask for [10]");
  AddKey(app, flags, "import_ttl_max_ms", "longest [3600000]");
  AddKey(app, flags, "removal_batch_members", "payload objects deleted per log record [1024]");
  AddKey(app, flags, "snapshot_every_records",
         "log records after which a snapshot is taken; 0: not for their number [100000]");
  AddKey(app, flags, "snapshot_every_bytes", "likewise for their bytes [67108864]");
  AddKey(app, flags, "pause_tolerance_ms",
         "of a pause of this process, how much counts for time-outs; 0: all of it [1000]");
  for (const char* key :
       {"weight_management_oplog_capability_confirmed", "weight_lineage_oplog_capability_confirmed",
        "weight_migration_cooldown_ms", "weight_migration_max_members_per_round",
        "weight_migration_max_bytes_per_round"}) {
    AddKey(app, flags, key, "checked; without effect in this version");
  }
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{
      "The Store Master of the Mooncake Weight Store: knows every weight revision, and "
      "what is where."};
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUse;
  }
  apps::MasterConfig config;
  config.options.pause_tolerance_ms = kPauseToleranceMs;
  if (const Status status = Configure(flags, &config); !status.ok()) return Report(status, kBadUse);

  // Before any thread is made, so that they all leave these to Serve.
  const sigset_t signals = SignalsOf(config);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  rpc::RouteGrpcLog();
  if (const Status status = env::MakeFolders(config.folder); !status.ok()) {
    return Report(status, kFailed);
  }
  const Result<env::FolderLock> lock = env::FolderLock::Acquire(config.folder);
  if (!lock.ok()) {
    return Report(lock.status(), lock.status().code() == Code::kUnavailable ? kTaken : kFailed);
  }
  int exit_code = kFailed;
  const Status status = Serve(config, signals, &exit_code);
  return status.ok() ? 0 : Report(status, exit_code);
}
