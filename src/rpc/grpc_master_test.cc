// GrpcMaster and GrpcMasterServer against each other over loopback.
#include "rpc/grpc_master.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "env/clock.h"
#include "env/deadline.h"
#include "rpc/grpc_master_server.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;

// Answers every RPC with what the test's handlers say; keeps the answers back while `holding`.
class ScriptedMaster final : public AsyncMaster {
 public:
#define MOONCAKE_DEFINE(Name)                                                               \
  void Name(const Caller& caller, const v1::Name##Request& request, v1::Name##Reply* reply, \
            Done done) override {                                                           \
    OnCall(#Name, caller);                                                                  \
    Fill(request, reply);                                                                   \
    Finish(std::move(done));                                                                \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

  // Answers of the next calls, in order; then OK.
  void Script(std::deque<Status> statuses) {
    std::lock_guard lock(mutex_);
    script_ = std::move(statuses);
  }
  void Hold() {
    std::lock_guard lock(mutex_);
    holding_ = true;
  }
  void LetGo() {
    std::vector<Done> held;
    {
      std::lock_guard lock(mutex_);
      holding_ = false;
      held.swap(held_);
    }
    for (Done& done : held) done();
  }
  bool WaitForCalls(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return calls_.size() >= count; });
  }
  std::vector<std::string> calls() {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  std::vector<Caller> callers() {
    std::lock_guard lock(mutex_);
    return callers_;
  }
  std::vector<v1::CommandId> commands() {
    std::lock_guard lock(mutex_);
    return commands_;
  }

 private:
  void OnCall(const char* name, const Caller& caller) {
    std::lock_guard lock(mutex_);
    calls_.push_back(name);
    callers_.push_back(caller);
    changed_.notify_all();
  }
  template <class Request, class Reply>
  void Fill(const Request& request, Reply* reply) {
    std::lock_guard lock(mutex_);
    if constexpr (requires { request.command(); }) commands_.push_back(request.command());
    if constexpr (std::is_same_v<Reply, v1::GetWeightReply>) {
      *reply->mutable_metadata()->mutable_identity() = request.identity();
    }
    Status status;
    if (!script_.empty()) {
      status = script_.front();
      script_.pop_front();
    }
    SetStatus(reply->mutable_status(), status);
  }
  void Finish(Done done) {
    {
      std::lock_guard lock(mutex_);
      if (holding_) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Status> script_;
  bool holding_ = false;
  std::vector<Done> held_;
  std::vector<std::string> calls_;
  std::vector<Caller> callers_;
  std::vector<v1::CommandId> commands_;
};

std::unique_ptr<GrpcMasterServer> MustStart(const std::string& listen, AsyncMaster& master) {
  auto server = GrpcMasterServer::Start(listen, master);
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? *std::move(server) : nullptr;
}

// However long that takes: the deadlines of later calls then measure what the test is about.
void MustConnect(GrpcMaster& master) {
  const env::Deadline deadline = env::Deadline::AfterMs(20'000);
  while (master.GetWeight({}).status().code() != 0) ASSERT_FALSE(deadline.Expired());
}

v1::RemoveWeightRequest Removal(uint64_t sequence) {
  v1::RemoveWeightRequest request;
  request.mutable_command()->set_client_id("0123456789abcdef0123456789abcdef");
  request.mutable_command()->set_sequence(sequence);
  return request;
}

TEST(GrpcMaster, EveryRpcReachesItsMethod) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address());
  std::vector<std::string> expected;
#define MOONCAKE_CALL(Name)  \
  expected.push_back(#Name); \
  EXPECT_EQ(master.Name(v1::Name##Request()).status().code(), 0u) << #Name;
  MOONCAKE_MASTER_RPCS(MOONCAKE_CALL)
#undef MOONCAKE_CALL
  EXPECT_EQ(scripted.calls(), expected);
}

TEST(GrpcMaster, RefusalsOfTheMasterAreAnswers) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address());
  for (int code = 1; code <= kCodeMax; ++code) {
    if (static_cast<Code>(code) == Code::kUnavailable) continue;
    scripted.Script({Status(static_cast<Code>(code), "because")});
    const Status status = StatusFromProto(master.RemoveWeight(Removal(1)).status());
    EXPECT_EQ(status, Status(static_cast<Code>(code), "because"));
  }
  EXPECT_EQ(scripted.calls().size(), size_t{kCodeMax - 1});
}

TEST(GrpcMaster, LargeMessagesPass) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address());
  v1::GetWeightRequest request;
  request.mutable_identity()->set_resource_id(std::string(40 << 20, 'r'));
  const v1::GetWeightReply reply = master.GetWeight(request);
  ASSERT_EQ(reply.status().code(), 0u) << reply.status().message();
  EXPECT_EQ(reply.metadata().identity().resource_id(), request.identity().resource_id());
}

TEST(GrpcMaster, UnavailableIsAskedAgainWithTheSameCommand) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address());
  scripted.Script({Unavailable("not yet"), Unavailable("not yet")});
  EXPECT_EQ(master.RemoveWeight(Removal(7)).status().code(), 0u);
  ASSERT_EQ(scripted.commands().size(), 3u);
  for (const v1::CommandId& command : scripted.commands()) {
    EXPECT_EQ(command.sequence(), 7u);
    EXPECT_EQ(command.client_id(), "0123456789abcdef0123456789abcdef");
  }
}

TEST(GrpcMaster, UnavailableForLongIsTheAnswer) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address(), {.total_timeout_ms = 300});
  MustConnect(master);
  scripted.Script(std::deque<Status>(100, Unavailable("node n1 is away")));
  const Status status = StatusFromProto(master.RemoveWeight(Removal(7)).status());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("node n1 is away"));
  EXPECT_THAT(status.message(), HasSubstr("RemoveWeight at Master " + server->address()));
}

TEST(GrpcMaster, NobodyThereIsUnavailableInTime) {
  ScriptedMaster scripted;
  std::string address;
  {
    auto server = MustStart("127.0.0.1:0", scripted);
    address = server->address();
  }
  GrpcMaster master(address, {.connect_timeout_ms = 100, .total_timeout_ms = 300});
  const int64_t begin_ms = env::SystemClock::Instance().MonotonicMs();
  for (const v1::StatusProto& status :
       {master.GetWeight({}).status(), master.RemoveWeight(Removal(1)).status()}) {
    EXPECT_EQ(static_cast<Code>(status.code()), Code::kUnavailable) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(address));
  }
  EXPECT_LT(env::SystemClock::Instance().MonotonicMs() - begin_ms, 10'000);
}

TEST(GrpcMaster, ASilentMasterLeavesACommandInDoubtAndAQueryUnavailable) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address(), {.attempt_timeout_ms = 100, .total_timeout_ms = 400});
  MustConnect(master);
  scripted.Hold();
  EXPECT_EQ(static_cast<Code>(master.RemoveWeight(Removal(1)).status().code()),
            Code::kOutcomeUnknown);
  EXPECT_GE(scripted.commands().size(), 2u);
  EXPECT_EQ(static_cast<Code>(master.GetWeight({}).status().code()), Code::kUnavailable);
  scripted.LetGo();
}

TEST(GrpcMaster, ARestartOnTheSamePortIsSurvived) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  const std::string address = server->address();
  GrpcMaster master(address);
  ASSERT_EQ(master.GetWeight({}).status().code(), 0u);
  scripted.Hold();
  v1::StatusProto answer;
  std::thread caller([&] { answer = master.RemoveWeight(Removal(3)).status(); });
  ASSERT_TRUE(scripted.WaitForCalls(2));
  // The call in flight is cut off, its answer lost.
  std::thread stopper([&] { server->Stop(0); });
  scripted.LetGo();
  stopper.join();
  server = MustStart(address, scripted);
  ASSERT_NE(server, nullptr);
  caller.join();
  EXPECT_EQ(answer.code(), 0u) << answer.message();
  for (const v1::CommandId& command : scripted.commands()) EXPECT_EQ(command.sequence(), 3u);
}

TEST(GrpcMaster, CancelEndsCallsAndRefusesLaterOnes) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  scripted.Hold();
  GrpcMaster master(server->address());
  v1::StatusProto query, command;
  std::thread first([&] { query = master.GetWeight({}).status(); });
  std::thread second([&] { command = master.RemoveWeight(Removal(1)).status(); });
  ASSERT_TRUE(scripted.WaitForCalls(2));
  master.Cancel();
  first.join();
  second.join();
  EXPECT_EQ(static_cast<Code>(query.code()), Code::kCancelled);
  EXPECT_EQ(static_cast<Code>(command.code()), Code::kOutcomeUnknown);
  EXPECT_EQ(static_cast<Code>(master.GetWeight({}).status().code()), Code::kCancelled);
  scripted.LetGo();
}

TEST(GrpcMaster, ManyThreadsGetTheirOwnAnswers) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  GrpcMaster master(server->address());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        v1::GetWeightRequest request;
        request.mutable_identity()->set_resource_id("r" + std::to_string(t));
        request.mutable_identity()->set_weight_generation(i);
        const v1::GetWeightReply reply = master.GetWeight(request);
        wrong += reply.metadata().identity().resource_id() != request.identity().resource_id() ||
                 reply.metadata().identity().weight_generation() != i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(GrpcMasterServer, ATakenPortIsNotShared) {
  ScriptedMaster scripted;
  auto server = MustStart("127.0.0.1:0", scripted);
  auto second = GrpcMasterServer::Start(server->address(), scripted);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(server->address()));
  EXPECT_THAT(second.status().message(), HasSubstr("Address already in use"));
}

TEST(GrpcMasterServer, RefusesAddressesThatAreNone) {
  ScriptedMaster scripted;
  for (const char* listen : {"", "host", "host:", ":1", "127.0.0.1:x", "127.0.0.1:65536"}) {
    auto server = GrpcMasterServer::Start(listen, scripted);
    ASSERT_FALSE(server.ok()) << listen;
    EXPECT_EQ(server.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(server.status().message(), HasSubstr(std::string("\"") + listen + "\""));
  }
}

}  // namespace
}  // namespace mooncake::rpc
