// mooncake-node: a store node for the clients of this host, and with --listen for those of others.
//
// Prints one line to standard output once the Master knows it:
//   mooncake-node <node_id> ready on <socket>[ and <host:port>], <capacity> bytes, master
//   <host:port>
// SIGTERM and SIGINT end it in order; its memory goes with it, METADATA objects stay in the folder.
// A Master that refuses it (the folder is another cluster's) ends it with status 1; once it serves,
// it waits for the right Master to come back.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/digest.h"
#include "base/log.h"
#include "env/deadline.h"
#include "env/host_id.h"
#include "env/random.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "node/node_service.h"
#include "rpc/credentials.h"
#include "rpc/grpc_master.h"
#include "rpc/host_port.h"
#include "rpc/node_server.h"

namespace {

using namespace mooncake;

// A socket's path is at most this long (sun_path, less its end).
constexpr size_t kSocketPathMax = 107;
// Between two looks at whether the program should end.
constexpr int64_t kLookMs = 200;

struct Flags {
  std::string master;
  std::string folder;
  std::string socket;
  std::string listen;
  std::string advertise;
  std::string node_id;
  std::string log_level = "info";
  bool objects_only = false;
  bool insecure = false;
  uint64_t capacity_bytes = uint64_t{4} << 30;
  std::optional<uint64_t> prepare_bytes;
  std::vector<uid_t> allowed_uids;
  rpc::CredentialSource credentials;
};

// Of the capacity, when nothing is said.
constexpr uint64_t kPreparedShare = 4;

// In the folder where that is short enough; else a name that nobody can have taken before.
std::string SocketPath(const Flags& flags) {
  if (!flags.socket.empty()) return flags.socket;
  std::string path = flags.folder + "/node.sock";
  if (path.size() <= kSocketPathMax) return path;
  return "/tmp/mooncake-node-" + HexOf(env::SystemRandom::Instance().RandomBytes(16)) + ".sock";
}

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Whoever reaches --listen gets what a grant permits. So the Master must know to whom it gives
// grants, and the key that makes them must not be read on its way there, unless the operator says
// that nobody is around. INVALID_ARGUMENT: what is missing.
Status CheckExposure(const Flags& flags) {
  if (flags.listen.empty() || flags.insecure) return OkStatus();
  MC_ASSIGN_OR_RETURN(const rpc::HostPort listen, rpc::SplitHostPort(flags.listen));
  if (rpc::IsLoopback(listen.host)) return OkStatus();
  const auto refused = [&flags](std::string_view what, std::string_view flag) {
    return InvalidArgument("--listen " + flags.listen + " would serve other hosts " +
                           std::string(what) + ": give " + std::string(flag) +
                           ", or say --insecure if the network is trusted");
  };
  const rpc::CredentialSource shown = rpc::WithEnvironment(flags.credentials, rpc::As::kNode);
  if (shown.token.empty() && shown.token_file.empty()) {
    return refused("for a Master that does not ask who calls", "--token-file");
  }
  MC_ASSIGN_OR_RETURN(const rpc::HostPort master, rpc::SplitHostPort(flags.master));
  if (shown.tls_ca.empty() && !rpc::IsLoopback(master.host)) {
    return refused("and tell its key to the Master in the clear", "--tls-ca");
  }
  return OkStatus();
}

// Whether a signal came within `ms`.
bool EndWanted(const sigset_t& signals, int64_t ms) {
  const timespec wait{ms / 1000, ms % 1000 * 1'000'000};
  return sigtimedwait(&signals, nullptr, &wait) > 0;
}

// The socket is open to everybody where others than this user may ask; who else does is refused.
rpc::NodeServerOptions ServerOptions(const Flags& flags) {
  rpc::NodeServerOptions options;
  options.allowed_uids = flags.allowed_uids;
  if (!options.allowed_uids.empty()) options.socket_mode = 0666;
  return options;
}

Status Serve(const Flags& flags, const sigset_t& signals) {
  MC_ASSIGN_OR_RETURN(const rpc::Credentials credentials, rpc::ReadCredentials(rpc::WithEnvironment(
                                                              flags.credentials, rpc::As::kNode)));
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<node::Node> node,
                      node::Node::Open({.folder = flags.folder,
                                        .capacity_bytes = flags.capacity_bytes,
                                        .node_id = flags.node_id,
                                        .prepare_bytes = flags.prepare_bytes.value_or(
                                            flags.capacity_bytes / kPreparedShare)}));
  node::NodeService service(*node);
  const std::string socket = SocketPath(flags);
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::NodeServer> server,
                      rpc::NodeServer::StartUnix(socket, service, ServerOptions(flags)));
  std::unique_ptr<rpc::NodeServer> tcp_server;
  if (!flags.listen.empty()) {
    MC_ASSIGN_OR_RETURN(tcp_server,
                        rpc::NodeServer::StartTcp(flags.listen, flags.advertise, service));
  }
  const std::string tcp_address = tcp_server != nullptr ? tcp_server->address() : "";
  const auto master =
      std::make_shared<rpc::GrpcMaster>(flags.master, rpc::GrpcMasterOptions(), credentials);
  node::NodeAgent agent(*node, master,
                        {.host_id = env::HostId(),
                         .socket_path = socket,
                         .tcp_address = tcp_address,
                         .objects_only = flags.objects_only});
  bool end = false;
  bool registered = false;
  Status refused;
  while (!end && !registered && refused.ok()) {
    const Status status = agent.WaitRegistered(env::Deadline::AfterMs(kLookMs));
    registered = status.ok();
    // A Master that is away may come; one that refuses this node is the wrong one.
    if (!status.ok() && status.code() != Code::kUnavailable) refused = status;
    end = EndWanted(signals, 0);
  }
  if (registered && !end) {
    const std::string also = tcp_address.empty() ? "" : " and " + tcp_address;
    std::printf("mooncake-node %s ready on %s%s, %llu bytes, master %s\n", node->node_id().c_str(),
                socket.c_str(), also.c_str(), static_cast<unsigned long long>(flags.capacity_bytes),
                flags.master.c_str());
    std::fflush(stdout);
  }
  while (!end && refused.ok()) end = EndWanted(signals, 3'600'000);
  Log().info("node {}: ending", node->node_id());
  // A call to a Master that is away would hold the agent's thread for its whole time-out.
  master->Cancel();
  agent.Stop();
  if (tcp_server != nullptr) tcp_server->Stop();
  server->Stop();
  return refused.WithContext("Store Master " + flags.master);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app{
      "A store node of the Mooncake Weight Store: memory for weights, shared with the "
      "clients of this host."};
  app.set_version_flag("--version", std::string("mooncake-node " MOONCAKE_VERSION));
  app.add_option("--master", flags.master, "host:port of the Store Master")->required();
  app.add_option("--folder", flags.folder, "where METADATA objects and the node's id are kept")
      ->required();
  app.add_option("--capacity", flags.capacity_bytes, "memory for weights, e.g. 8GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->capture_default_str();
  app.add_option(
         "--prepare", flags.prepare_bytes,
         "how much of the free memory is kept ready, so that a publish of that size does not "
         "wait for the kernel to make it; default: a quarter of the capacity")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true));
  app.add_option("--node-id", flags.node_id, "default: made once and kept in the folder");
  app.add_option("--socket", flags.socket,
                 "Unix socket to serve; default: node.sock in the folder");
  app.add_option(
      "--listen", flags.listen,
      "host:port to serve clients of other hosts on, over TCP and not encrypted; port 0: "
      "the system assigns one; default: none. Needs a token, and TLS to the Master, unless it is "
      "an address of this host alone");
  app.add_flag("--insecure", flags.insecure,
               "--listen without these, on a network that is trusted");
  app.add_option("--advertise", flags.advertise,
                 "host that clients of other hosts are told, where it is not --listen's");
  app.add_flag("--objects-only", flags.objects_only,
               "lend the memory to ordinary objects, never to weights");
  app.add_option("--allow-uid", flags.allowed_uids,
                 "user id whose processes may use the memory, besides this user and root; "
                 "may be given several times");
  app.add_option("--token-file", flags.credentials.token_file,
                 "file with the node's token; default: $MOONCAKE_TOKEN_FILE, or $MOONCAKE_TOKEN");
  app.add_option("--tls-ca", flags.credentials.tls_ca,
                 "PEM of who signs the Master's certificate; default: $MOONCAKE_TLS_CA");
  app.add_option("--tls-cert", flags.credentials.tls_cert,
                 "PEM of the node's certificate, for a Master that asks for one; default: "
                 "$MOONCAKE_TLS_CERT");
  app.add_option("--tls-key", flags.credentials.tls_key, "its key; default: $MOONCAKE_TLS_KEY");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warning, error or off")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  if (const Status status = SetLogLevel(flags.log_level); !status.ok()) {
    std::fprintf(stderr, "mooncake-node: %s\n", status.ToString().c_str());
    return 2;
  }
  if (const Status status = CheckExposure(flags); !status.ok()) {
    std::fprintf(stderr, "mooncake-node: %s\n", status.ToString().c_str());
    return 2;
  }
  // Before any thread is made, so that they all leave these to Serve.
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const Status status = Serve(flags, signals);
  if (!status.ok()) {
    std::fprintf(stderr, "mooncake-node: %s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
