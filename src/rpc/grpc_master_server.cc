#include "rpc/grpc_master_server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "base/log.h"
#include "env/tcp_probe.h"
#include "mooncake/v1/master.grpc.pb.h"
#include "rpc/limits.h"

namespace mooncake::rpc {
namespace {

class Service final : public v1::Master::CallbackService {
 public:
  explicit Service(AsyncMaster& master) : master_(master) {}

#define MOONCAKE_DEFINE(Name)                                                              \
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context,                     \
                                 const v1::Name##Request* request, v1::Name##Reply* reply) \
      override {                                                                           \
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();                         \
    master_.Name(Caller::Operator(), *request, reply,                                      \
                 [reactor] { reactor->Finish(grpc::Status::OK); });                        \
    return reactor;                                                                        \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  AsyncMaster& master_;
};

struct HostPort {
  std::string host;
  std::string port;
};

Result<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return InvalidArgument(fmt::format("expected host:port, got \"{}\"", address));
  }
  const HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  const bool digits = parts.port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || parts.port.size() > 5 || std::stoul(parts.port) > 65535) {
    return InvalidArgument(
        fmt::format("expected a port from 0 to 65535 in \"{}\", got \"{}\"", address, parts.port));
  }
  return parts;
}

// gRPC does not tell why it could not bind; the system says it again to whoever asks.
Status WhyNotBound(const HostPort& parts) {
  MC_RETURN_IF_ERROR(env::ProbeTcpListen(parts.host, parts.port));
  return Unavailable(
      fmt::format("cannot listen on {}:{}: gRPC gave no reason", parts.host, parts.port));
}

void LogFromGrpc(gpr_log_func_args* args) {
  Log().debug("grpc: {}:{}: {}", args->file, args->line, args->message);
}

}  // namespace

struct GrpcMasterServer::Parts {
  explicit Parts(AsyncMaster& master) : service(master) {}

  Service service;
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<GrpcMasterServer>> GrpcMasterServer::Start(const std::string& listen,
                                                                  AsyncMaster& master) {
  MC_ASSIGN_OR_RETURN(const HostPort parts_of, Split(listen));
  auto parts = std::make_unique<Parts>(master);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  // Otherwise a second Master could listen on the same port and take half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&parts->service);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr || port == 0) return WhyNotBound(parts_of);
  const std::string address = fmt::format("{}:{}", parts_of.host, port);
  return std::unique_ptr<GrpcMasterServer>(new GrpcMasterServer(address, std::move(parts)));
}

GrpcMasterServer::GrpcMasterServer(std::string address, std::unique_ptr<Parts> parts)
    : address_(std::move(address)), parts_(std::move(parts)) {}

GrpcMasterServer::~GrpcMasterServer() { Stop(); }

void GrpcMasterServer::Stop(int grace_ms) {
  if (parts_->server == nullptr) return;
  parts_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(grace_ms));
  parts_->server->Wait();
  parts_->server.reset();
}

void RouteGrpcLog() { gpr_set_log_function(&LogFromGrpc); }

}  // namespace mooncake::rpc
