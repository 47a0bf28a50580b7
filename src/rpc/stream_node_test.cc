// StreamNodeChannel and NodeServer against each other.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <semaphore>
#include <thread>

#include "base/digest.h"
#include "env/memory_file.h"
#include "env/tcp_socket.h"
#include "env/test_folder.h"
#include "env/unix_socket.h"
#include "rpc/node_server.h"
#include "rpc/status_proto.h"
#include "rpc/stream_node_channel.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;

CallBounds Within(int64_t ms) { return {env::Deadline::AfterMs(ms), {}}; }
CallBounds Soon() { return Within(20'000); }

// Keeps METADATA objects in a map; an arena is a fresh memfd whose first byte is its id.
class MapHandler final : public NodeHandler {
 public:
  v1::NodeReply Handle(const v1::NodeRequest& request, const NodePeer& peer,
                       env::UniqueFd* fd_out) override {
    v1::NodeReply reply;
    std::lock_guard lock(mutex_);
    peers_.push_back(peer.process == nullptr ? 0 : peer.process->pid());
    switch (request.kind_case()) {
      case v1::NodeRequest::kOpenArena: {
        const v1::Grant& grant = request.open_arena().grant();
        auto file = env::MemoryFile::CreateAnonymous("arena", grant.arena_bytes());
        MC_CHECK(file.ok());
        const char id = static_cast<char>(grant.arena_id());
        MC_CHECK(::pwrite(file->fd(), &id, 1, 0) == 1);
        reply.set_arena_bytes(grant.arena_bytes() + arena_bytes_off_);
        *fd_out = env::UniqueFd(::dup(file->fd()));
        break;
      }
      case v1::NodeRequest::kWriteMetadata: {
        const v1::WriteMetadata& write = request.write_metadata();
        const Sha256Digest sha256 = Sha256Of(write.content());
        MC_CHECK(write.sha256() == std::string(sha256.begin(), sha256.end()));
        metadata_[write.name()] = write.content();
        break;
      }
      case v1::NodeRequest::kReadMetadata: {
        const auto found = metadata_.find(request.read_metadata().name());
        if (found == metadata_.end()) {
          SetStatus(reply.mutable_status(), NotFound("no " + request.read_metadata().name()));
        } else {
          reply.set_content(found->second);
        }
        break;
      }
      default:
        ++seals_;
        if (gate_ != nullptr) {
          entered_.release();
          gate_->acquire();
        }
    }
    return reply;
  }

  uint64_t arena_bytes_off_ = 0;
  int seals_ = 0;
  std::vector<pid_t> peers_;
  std::binary_semaphore* gate_ = nullptr;
  std::binary_semaphore entered_{0};

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> metadata_;
};

class UnixNodeTest : public testing::Test {
 protected:
  std::unique_ptr<NodeServer> MustStart(NodeServerOptions options = {}) {
    auto server = NodeServer::StartUnix(path_, handler_, std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return *std::move(server);
  }
  std::shared_ptr<StreamNodeChannel> MustConnect() {
    auto channel = StreamNodeChannel::ConnectUnix(path_, Soon());
    EXPECT_TRUE(channel.ok()) << channel.status().ToString();
    return *std::move(channel);
  }
  // Waits until the server has that many connections.
  static bool WaitForConnections(const NodeServer& server, size_t count) {
    const env::Deadline deadline = env::Deadline::AfterMs(20'000);
    while (server.connection_count() != count) {
      if (deadline.Expired()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  env::TestFolder folder_;
  const std::string path_ = folder_ / "node.sock";
  MapHandler handler_;
};

v1::Grant ArenaGrant(uint64_t arena_id, uint64_t bytes) {
  v1::Grant grant;
  grant.set_arena_id(arena_id);
  grant.set_arena_bytes(bytes);
  return grant;
}

TEST_F(UnixNodeTest, FourCalls) {
  auto server = MustStart();
  auto channel = MustConnect();
  auto fd = channel->OpenArena(ArenaGrant(42, 8192), Soon());
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  struct stat info {};
  ASSERT_EQ(::fstat(fd->get(), &info), 0);
  EXPECT_EQ(info.st_size, 8192);
  char id = 0;
  ASSERT_EQ(::pread(fd->get(), &id, 1, 0), 1);
  EXPECT_EQ(id, 42);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);

  std::string content(9 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 1000);
  ASSERT_TRUE(channel->WriteMetadata({}, "manifest", content, Soon()).ok());
  EXPECT_EQ(channel->ReadMetadata({}, "manifest", Soon()).value(), content);
  EXPECT_EQ(channel->ReadMetadata({}, "other", Soon()).status(), NotFound("no other"));
  ASSERT_TRUE(channel->SealImport({}, Soon()).ok());
  EXPECT_EQ(handler_.seals_, 1);
  ASSERT_FALSE(handler_.peers_.empty());
  EXPECT_EQ(handler_.peers_[0], ::getpid());
}

TEST_F(UnixNodeTest, NoDescriptorIsLeaked) {
  auto server = MustStart();
  const size_t before = env::OpenFdCount();
  {
    auto channel = MustConnect();
    for (uint64_t i = 0; i < 100; ++i)
      ASSERT_TRUE(channel->OpenArena(ArenaGrant(i, 4096), Soon()).ok());
  }
  ASSERT_TRUE(WaitForConnections(*server, 0));
  // The next accept reaps the thread and the socket of the one before.
  {
    auto another = MustConnect();
    ASSERT_TRUE(another->SealImport({}, Soon()).ok());
  }
  ASSERT_TRUE(WaitForConnections(*server, 0));
  EXPECT_LE(env::OpenFdCount(), before + 1);
}

TEST_F(UnixNodeTest, AnArenaOfAnotherSizeIsCorrupt) {
  auto server = MustStart();
  handler_.arena_bytes_off_ = 4096;
  auto channel = MustConnect();
  const Status status = channel->OpenArena(ArenaGrant(1, 8192), Soon()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected arena 1 of 8192 bytes, got 12288"));
}

TEST_F(UnixNodeTest, ARestartedServerIsFoundAgain) {
  auto server = MustStart();
  auto channel = MustConnect();
  ASSERT_TRUE(channel->WriteMetadata({}, "a", "1", Soon()).ok());
  server.reset();
  Status status = channel->SealImport({}, Soon());
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(path_));
  server = MustStart();
  EXPECT_EQ(channel->ReadMetadata({}, "a", Soon()).value(), "1");
  server.reset();
  server = MustStart();
  EXPECT_EQ(channel->ReadMetadata({}, "a", Soon()).value(), "1");
}

TEST_F(UnixNodeTest, NobodyThere) {
  auto channel = StreamNodeChannel::ConnectUnix(path_, Soon());
  ASSERT_FALSE(channel.ok());
  EXPECT_EQ(channel.status().code(), Code::kUnavailable);
  SocketNodeConnector connector("h1");
  v1::NodeAddress address;
  address.set_node_id("n1");
  address.set_host_id("h1");
  EXPECT_EQ(connector.Connect(address, Soon()).status().code(), Code::kInvalidArgument);
  address.set_socket_path(path_);
  const Status status = connector.Connect(address, Soon()).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("node n1 of host h1"));
}

// Whoever is idle makes room, and is back when it asks again.
TEST_F(UnixNodeTest, MoreClientsThanConnections) {
  auto server = MustStart({.max_connections = 2});
  std::vector<std::shared_ptr<StreamNodeChannel>> channels;
  channels.reserve(5);
  for (int i = 0; i < 5; ++i) channels.push_back(MustConnect());
  for (int round = 0; round < 20; ++round) {
    for (const auto& channel : channels) {
      const Status status = channel->SealImport({}, Soon());
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_LE(server->connection_count(), 2u);
    }
  }
  EXPECT_EQ(handler_.seals_, 100);
}

// Where nobody is idle a client waits for its turn, as long as it wants to.
TEST_F(UnixNodeTest, WhereAllAreBusyTheNextOneWaits) {
  auto server = MustStart({.max_connections = 1});
  std::binary_semaphore gate(0);
  handler_.gate_ = &gate;
  auto busy = MustConnect();
  std::thread caller([&] { EXPECT_TRUE(busy->SealImport({}, Soon()).ok()); });
  handler_.entered_.acquire();
  auto waiting = MustConnect();
  const Status late = waiting->ReadMetadata({}, "a", Within(100)).status();
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr(path_));
  EXPECT_THAT(late.message(), HasSubstr("the deadline ran out"));
  std::thread patient(
      [&] { EXPECT_EQ(waiting->ReadMetadata({}, "a", Soon()).status(), NotFound("no a")); });
  gate.release();
  caller.join();
  patient.join();
}

TEST_F(UnixNodeTest, AnIdleConnectionIsClosedAndOpenedAgainWhenItIsNeeded) {
  auto server = MustStart({.idle_timeout_ms = 1});
  auto channel = MustConnect();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(channel->SealImport({}, Soon()).ok());
    ASSERT_TRUE(WaitForConnections(*server, 0));
  }
  EXPECT_EQ(handler_.seals_, 3);
}

// A request that never ends must not hold its place.
TEST_F(UnixNodeTest, HalfARequestIsNotWaitedForForEver) {
  auto server = MustStart({.receive_timeout_ms = 1});
  auto half = env::UnixSocket::Connect(path_, env::Deadline::AfterMs(5000));
  ASSERT_TRUE(half.ok());
  const char bytes[6] = {100, 0, 0, 0, 'x', 'y'};
  ASSERT_EQ(::write(half->fd(), bytes, sizeof bytes), 6);
  EXPECT_TRUE(WaitForConnections(*server, 0));
}

// What a stopped process is to its clients.
TEST_F(UnixNodeTest, ANodeThatDoesNotAnswerIsGivenUpInTime) {
  auto server = MustStart();
  auto channel = MustConnect();
  std::binary_semaphore gate(0);
  handler_.gate_ = &gate;
  const Status late = channel->SealImport({}, Within(50));
  EXPECT_EQ(late.code(), Code::kUnavailable);
  EXPECT_THAT(late.message(), HasSubstr("the deadline ran out while waiting to receive a frame"));
  handler_.entered_.acquire();
  gate.release();

  // The caller gives up: at once, and only this call of it.
  std::stop_source stop;
  std::thread gives_up([&] {
    handler_.entered_.acquire();
    stop.request_stop();
  });
  const Status cancelled =
      channel->SealImport({}, {env::Deadline::AfterMs(600'000), stop.get_token()});
  EXPECT_EQ(cancelled.code(), Code::kCancelled);
  gives_up.join();

  // Another caller of the same channel waits for it no longer than it wants to.
  gate.release();
  std::thread long_call([&] { EXPECT_TRUE(channel->SealImport({}, Soon()).ok()); });
  handler_.entered_.acquire();
  const Status behind = channel->ReadMetadata({}, "a", Within(50)).status();
  EXPECT_EQ(behind.code(), Code::kUnavailable);
  EXPECT_THAT(behind.message(), HasSubstr("waiting for earlier calls"));
  EXPECT_EQ(
      channel->ReadMetadata({}, "a", {env::Deadline::Infinite(), stop.get_token()}).status().code(),
      Code::kCancelled);
  gate.release();
  long_call.join();
  EXPECT_EQ(channel->ReadMetadata({}, "a", Soon()).status(), NotFound("no a"));
}

TEST_F(UnixNodeTest, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  for (const uid_t allowed_uid : {0, 65533, 65534}) {
    const bool allowed = allowed_uid == 65534;
    NodeServerOptions options{.socket_mode = 0666};
    if (allowed_uid != 0) options.allowed_uids = {allowed_uid};
    auto server = MustStart(std::move(options));
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setgroups(0, nullptr) != 0 || ::setuid(65534) != 0) ::_exit(100);
      auto channel = StreamNodeChannel::ConnectUnix(path_, Soon());
      ::_exit(channel.ok() ? static_cast<int>((*channel)->SealImport({}, Soon()).code()) : 101);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(allowed ? Code::kOk : Code::kPermissionDenied));
  }
}

TEST_F(UnixNodeTest, GarbageEndsOnlyItsOwnConnection) {
  auto server = MustStart();
  auto good = MustConnect();
  ASSERT_TRUE(good->SealImport({}, Soon()).ok());
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(3, '\x01')}) {
    auto bad = env::UnixSocket::Connect(path_, env::Deadline::AfterMs(5000));
    ASSERT_TRUE(bad.ok());
    ASSERT_TRUE(bad->SendFrame(bytes, env::Deadline::AfterMs(5000)).ok());
    auto frame = bad->ReceiveFrame(env::Deadline::AfterMs(20'000));
    EXPECT_FALSE(frame.ok() && frame->has_value());
  }
  EXPECT_TRUE(good->SealImport({}, Soon()).ok());
}

TEST_F(UnixNodeTest, StopEndsIdleConnectionsAndWaitsForTheBusyOne) {
  auto server = MustStart();
  auto idle = MustConnect();
  ASSERT_TRUE(idle->SealImport({}, Soon()).ok());
  std::binary_semaphore gate(0);
  handler_.gate_ = &gate;
  auto busy = MustConnect();
  std::thread caller([&] { (void)busy->SealImport({}, Soon()); });
  handler_.entered_.acquire();
  // The lost reply makes the channel ask again, of nobody.
  std::thread stopper([&] { server->Stop(); });
  gate.release();
  stopper.join();
  caller.join();
  server.reset();
  EXPECT_EQ(handler_.seals_, 2);
}

TEST_F(UnixNodeTest, ManyThreadsOverOneChannelAndOverMany) {
  auto server = MustStart();
  auto shared = MustConnect();
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      auto own = MustConnect();
      for (int i = 0; i < 50; ++i) {
        StreamNodeChannel& channel = i % 2 == 0 ? *own : *shared;
        const std::string name = "m" + std::to_string(t);
        const std::string content = std::to_string(i) + std::string(100 * t, 'x');
        wrong += !channel.WriteMetadata({}, name, content, Soon()).ok();
        auto read = channel.ReadMetadata({}, name, Soon());
        wrong += !read.ok() || *read != content;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A process that forked shares its parent's descriptors, and must not its connection.
TEST_F(UnixNodeTest, AForkedChildConnectsAnew) {
  auto server = MustStart();
  auto channel = MustConnect();
  ASSERT_TRUE(channel->SealImport({}, Soon()).ok());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(channel->SealImport({}, Soon()).ok() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ASSERT_TRUE(channel->SealImport({}, Soon()).ok());
  EXPECT_EQ(handler_.peers_, (std::vector<pid_t>{::getpid(), child, ::getpid()}));
}

// ---- TCP ----

class TcpNodeTest : public UnixNodeTest {
 protected:
  std::unique_ptr<NodeServer> MustStartTcp(NodeServerOptions options = {}) {
    auto server = NodeServer::StartTcp("127.0.0.1:0", "", handler_, std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return *std::move(server);
  }
  static std::shared_ptr<StreamNodeChannel> MustConnectTo(const NodeServer& server) {
    auto channel = StreamNodeChannel::ConnectTcp(server.address(), Soon());
    EXPECT_TRUE(channel.ok()) << channel.status().ToString();
    return *std::move(channel);
  }
};

TEST_F(TcpNodeTest, CallsWithoutDescriptors) {
  auto server = MustStartTcp();
  auto channel = MustConnectTo(*server);
  std::string content(9 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 1000);
  ASSERT_TRUE(channel->WriteMetadata({}, "manifest", content, Soon()).ok());
  EXPECT_TRUE(channel->ReadMetadata({}, "manifest", Soon()).value() == content);
  EXPECT_EQ(channel->ReadMetadata({}, "other", Soon()).status(), NotFound("no other"));
  // Nobody's memory is read for who asks over TCP, though it be this process's.
  EXPECT_THAT(handler_.peers_, testing::Each(0));
}

TEST_F(TcpNodeTest, ADescriptorIsNotSent) {
  auto server = MustStartTcp();
  auto channel = MustConnectTo(*server);
  // A handler that gives one nonetheless: the connection ends, and the call with it.
  EXPECT_FALSE(channel->OpenArena(ArenaGrant(1, 4096), Soon()).ok());
  EXPECT_TRUE(channel->SealImport({}, Soon()).ok());
}

TEST_F(TcpNodeTest, TheConnectorChoosesByHost) {
  auto unix_server = MustStart();
  auto tcp_server = MustStartTcp();
  v1::NodeAddress address;
  address.set_node_id("n1");
  address.set_host_id("h1");
  address.set_socket_path(path_);
  SocketNodeConnector elsewhere("h2");
  const Status none = elsewhere.Connect(address, Soon()).status();
  EXPECT_EQ(none.code(), Code::kUnsupported);
  EXPECT_THAT(none.message(), HasSubstr("node n1 of host h1 serves no clients of other hosts"));
  address.set_tcp_address(tcp_server->address());
  ASSERT_TRUE((*elsewhere.Connect(address, Soon()))->SealImport({}, Soon()).ok());
  SocketNodeConnector here("h1");
  ASSERT_TRUE((*here.Connect(address, Soon()))->SealImport({}, Soon()).ok());
  EXPECT_EQ(handler_.peers_, (std::vector<pid_t>{0, ::getpid()}));
  tcp_server.reset();
  const Status gone = elsewhere.Connect(address, Soon()).status();
  EXPECT_EQ(gone.code(), Code::kUnavailable);
  EXPECT_THAT(gone.message(), HasSubstr("node n1 of host h1"));
}

TEST_F(TcpNodeTest, ARestartedServerIsFoundAgain) {
  auto server = MustStartTcp();
  const std::string address = server->address();
  auto channel = MustConnectTo(*server);
  ASSERT_TRUE(channel->WriteMetadata({}, "a", "1", Soon()).ok());
  server.reset();
  EXPECT_EQ(channel->SealImport({}, Soon()).code(), Code::kUnavailable);
  auto again = NodeServer::StartTcp(address, "", handler_);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(channel->ReadMetadata({}, "a", Soon()).value(), "1");
}

// Whoever it is that answers: it is no node, and the call ends.
TEST_F(TcpNodeTest, APeerThatIsNoNode) {
  auto listener = env::TcpListener::Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const std::string frame_of_garbage("\x03\0\0\0\xff\xff\xff", 7);
  const std::string torn("\x64\0\0\0abc", 7);
  for (const std::string& answer :
       {std::string("HTTP/1.1 400 Bad Request"), frame_of_garbage, torn, std::string()}) {
    std::thread peer([&] {
      // The channel asks once more where a connection that it had before broke.
      auto socket = listener->Accept(env::Deadline::AfterMs(20'000));
      ASSERT_TRUE(socket.ok());
      ASSERT_TRUE(socket->ReceiveReply(env::Deadline::AfterMs(20'000)).ok());
      ASSERT_EQ(::write(socket->fd(), answer.data(), answer.size()),
                static_cast<ssize_t>(answer.size()));
    });
    auto channel = StreamNodeChannel::ConnectTcp(listener->address(), Soon());
    ASSERT_TRUE(channel.ok());
    // The peer takes only one connection.
    const Status status = (*channel)->SealImport({}, Within(500));
    EXPECT_FALSE(status.ok()) << answer;
    peer.join();
  }
}

TEST_F(TcpNodeTest, GarbageAndHalfRequestsEndOnlyTheirOwnConnection) {
  auto server = MustStartTcp({.receive_timeout_ms = 100});
  auto good = MustConnectTo(*server);
  ASSERT_TRUE(good->SealImport({}, Soon()).ok());
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), std::string("GET / HTTP/1.1\r\n"),
        std::string("\x03\0\0\0\xff\xff\xff", 7), std::string("\x64\0\0\0abc", 7)}) {
    auto bad = env::TcpSocket::Connect(server->address(), env::Deadline::AfterMs(5000));
    ASSERT_TRUE(bad.ok());
    ASSERT_EQ(::write(bad->fd(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    auto frame = bad->ReceiveFrame(env::Deadline::AfterMs(20'000));
    EXPECT_FALSE(frame.ok() && frame->has_value());
  }
  EXPECT_TRUE(good->SealImport({}, Soon()).ok());
}

TEST_F(TcpNodeTest, StopEndsIdleConnectionsAndWaitsForTheBusyOne) {
  auto server = MustStartTcp();
  auto idle = MustConnectTo(*server);
  ASSERT_TRUE(idle->SealImport({}, Soon()).ok());
  std::binary_semaphore gate(0);
  handler_.gate_ = &gate;
  auto busy = MustConnectTo(*server);
  std::thread caller([&] { (void)busy->SealImport({}, Soon()); });
  handler_.entered_.acquire();
  std::thread stopper([&] { server->Stop(); });
  gate.release();
  stopper.join();
  caller.join();
  server.reset();
  EXPECT_EQ(handler_.seals_, 2);
}

TEST_F(TcpNodeTest, WhatClientsAreTold) {
  const Status unsaid = NodeServer::StartTcp("0.0.0.0:0", "", handler_).status();
  EXPECT_EQ(unsaid.code(), Code::kInvalidArgument);
  EXPECT_THAT(unsaid.message(), HasSubstr("say which one clients are told"));
  auto server = NodeServer::StartTcp("0.0.0.0:0", "localhost", handler_);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_THAT((*server)->address(), testing::StartsWith("localhost:"));
  EXPECT_TRUE(MustConnectTo(**server)->SealImport({}, Soon()).ok());
}

}  // namespace
}  // namespace mooncake::rpc
