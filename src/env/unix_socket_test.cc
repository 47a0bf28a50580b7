#include "env/unix_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "env/memory_file.h"
#include "env/test_folder.h"

namespace mooncake::env {
namespace {

using testing::HasSubstr;

Deadline Soon() { return Deadline::AfterMs(20'000); }

std::string LengthHeader(uint32_t length) {
  std::string header;
  for (int i = 0; i < 4; ++i) header += static_cast<char>(length >> (8 * i) & 0xff);
  return header;
}

void SendRaw(const UnixSocket& socket, std::string_view bytes) {
  ASSERT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

struct Ends {
  UnixSocket a;
  UnixSocket b;
};

Ends MakeEnds(const Interrupter* interrupter = nullptr) {
  auto pair = UnixSocket::Pair(interrupter);
  MC_CHECK(pair.ok());
  return {std::move(pair->first), std::move(pair->second)};
}

TEST(UnixSocketTest, ConnectAcceptAndCredentials) {
  const TestFolder folder;
  const std::string path = folder / "node.sock";
  auto listener = UnixListener::Listen(path);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  auto client = UnixSocket::Connect(path, Soon());
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  auto server = listener->Accept(Soon());
  ASSERT_TRUE(server.ok());
  const auto peer = server->Peer();
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  ASSERT_TRUE(client->SendFrame("hello", Soon()).ok());
  EXPECT_EQ(server->ReceiveReply(Soon())->bytes, "hello");
  for (const int fd : {client->fd(), server->fd()}) {
    EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(UnixSocketTest, FramesOfManySizesBothWaysUnderSignals) {
  // A timer signal without SA_RESTART, so that every call meets EINTR.
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction old_action {};
  ASSERT_EQ(::sigaction(SIGALRM, &action, &old_action), 0);
  itimerval timer{.it_interval = {0, 500}, .it_value = {0, 500}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &timer, nullptr), 0);

  Ends ends = MakeEnds();
  const std::vector<size_t> sizes = {0,      1,      3,         4,          5, 65'535,
                                     65'536, 65'537, 1'000'000, 20'000'000, 0};
  std::thread sender([&] {
    for (const size_t size : sizes) {
      std::string bytes(size, '\0');
      for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
      ASSERT_TRUE(ends.a.SendFrame(bytes, Soon()).ok());
    }
  });
  for (const size_t size : sizes) {
    const auto frame = ends.b.ReceiveReply(Soon());
    ASSERT_TRUE(frame.ok()) << frame.status().ToString();
    ASSERT_EQ(frame->bytes.size(), size);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(frame->bytes[i], static_cast<char>(i * 31 >> 3));
  }
  sender.join();
  timer = {};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
  ::sigaction(SIGALRM, &old_action, nullptr);
}

TEST(UnixSocketTest, LargestFramePassesAndOneMoreByteIsRefused) {
  Ends ends = MakeEnds();
  const std::string largest(kFrameBytesMax, 'x');
  std::thread sender([&] { ASSERT_TRUE(ends.a.SendFrame(largest, Soon()).ok()); });
  const auto frame = ends.b.ReceiveReply(Soon());
  sender.join();
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->bytes.size(), kFrameBytesMax);
  const Status refused = ends.a.SendFrame(largest + "y", Soon());
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("at most 268435456 bytes, got 268435457"));
  // Nothing of the refused frame was sent.
  ASSERT_TRUE(ends.a.SendFrame("after", Soon()).ok());
  EXPECT_EQ(ends.b.ReceiveReply(Soon())->bytes, "after");
}

TEST(UnixSocketTest, HostileLengthIsRefusedWithoutAllocating) {
  for (const uint32_t length : {kFrameBytesMax + 1, 0x80000000u, 0xffffffffu}) {
    Ends ends = MakeEnds();
    SendRaw(ends.a, LengthHeader(length) + "abc");
    const auto frame = ends.b.ReceiveFrame(Soon());
    EXPECT_EQ(frame.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(frame.status().message(), HasSubstr("announced " + std::to_string(length)));
    EXPECT_EQ(ends.b.ReceiveFrame(Soon()).status().code(), Code::kUnavailable);
    EXPECT_EQ(ends.b.SendFrame("x", Soon()).code(), Code::kUnavailable);
  }
}

TEST(UnixSocketTest, TornFramesAreToldFromRegularEnds) {
  {
    Ends ends = MakeEnds();
    ends.a.Shutdown();
    const auto frame = ends.b.ReceiveFrame(Soon());
    ASSERT_TRUE(frame.ok());
    EXPECT_FALSE(frame->has_value());
    EXPECT_THAT(ends.b.ReceiveReply(Soon()).status().ToString(),
                HasSubstr("UNAVAILABLE: the peer closed the connection"));
  }
  const std::string whole = LengthHeader(10) + "0123456789";
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    Ends ends = MakeEnds();
    SendRaw(ends.a, std::string_view(whole).substr(0, cut));
    ends.a.Shutdown();
    const auto frame = ends.b.ReceiveFrame(Soon());
    ASSERT_EQ(frame.status().code(), Code::kUnavailable) << cut;
    EXPECT_THAT(frame.status().message(),
                HasSubstr(cut < 4 ? "got " + std::to_string(cut) + " of 4 bytes"
                                  : "got " + std::to_string(cut - 4) + " of 10 bytes"));
    EXPECT_THAT(ends.b.ReceiveFrame(Soon()).status().message(), HasSubstr("broke inside"));
  }
}

TEST(UnixSocketTest, BytesMayTrickleIn) {
  Ends ends = MakeEnds();
  std::thread sender([&] {
    for (const char byte : LengthHeader(5) + "abcde" + LengthHeader(1) + "z") {
      SendRaw(ends.a, {&byte, 1});
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(ends.b.ReceiveReply(Soon())->bytes, "abcde");
  EXPECT_EQ(ends.b.ReceiveReply(Soon())->bytes, "z");
  sender.join();
}

TEST(UnixSocketTest, DeadlinesBetweenAndInsideFrames) {
  Ends ends = MakeEnds();
  const auto nothing = ends.b.ReceiveFrame(Deadline::AfterMs(1));
  EXPECT_EQ(nothing.status().code(), Code::kUnavailable);
  EXPECT_THAT(nothing.status().message(), HasSubstr("deadline"));
  // Nothing had arrived, so the stream still has its meaning.
  ASSERT_TRUE(ends.a.SendFrame("late", Soon()).ok());
  EXPECT_EQ(ends.b.ReceiveReply(Soon())->bytes, "late");
  SendRaw(ends.a, LengthHeader(9) + "half");
  EXPECT_EQ(ends.b.ReceiveFrame(Deadline::AfterMs(1)).status().code(), Code::kUnavailable);
  EXPECT_THAT(ends.b.ReceiveFrame(Soon()).status().message(), HasSubstr("broke inside"));

  Ends full = MakeEnds();
  const Status stuck = full.a.SendFrame(std::string(8'000'000, 'x'), Deadline::AfterMs(1));
  EXPECT_EQ(stuck.code(), Code::kUnavailable);
  EXPECT_THAT(full.a.SendFrame("x", Soon()).message(), HasSubstr("broke inside"));
}

TEST(UnixSocketTest, InterruptWakesEverythingForGood) {
  const TestFolder folder;
  const auto interrupter = Interrupter::Create();
  ASSERT_TRUE(interrupter.ok());
  auto listener = UnixListener::Listen(folder / "s", &*interrupter);
  ASSERT_TRUE(listener.ok());
  Ends ends = MakeEnds(&*interrupter);
  Ends sending = MakeEnds(&*interrupter);
  std::thread accepting(
      [&] { EXPECT_EQ(listener->Accept(Deadline::Infinite()).status().code(), Code::kCancelled); });
  std::thread receiving([&] {
    EXPECT_EQ(ends.a.ReceiveFrame(Deadline::Infinite()).status().code(), Code::kCancelled);
  });
  std::thread stuck([&] {
    const std::string large(8'000'000, 'x');
    EXPECT_EQ(sending.a.SendFrame(large, Deadline::Infinite()).code(), Code::kCancelled);
  });
  EXPECT_FALSE(interrupter->interrupted());
  interrupter->Interrupt();
  interrupter->Interrupt();
  EXPECT_TRUE(interrupter->interrupted());
  accepting.join();
  receiving.join();
  stuck.join();
  // Also when there would be something to do at once.
  Ends ready = MakeEnds(&*interrupter);
  ASSERT_TRUE(ready.a.SendFrame("x", Soon()).ok());
  EXPECT_EQ(ready.b.ReceiveFrame(Soon()).status().code(), Code::kCancelled);
}

TEST(UnixSocketTest, ShutdownFromAnotherThreadEndsAWait) {
  Ends ends = MakeEnds();
  std::thread receiving([&] {
    const auto frame = ends.a.ReceiveFrame(Deadline::Infinite());
    ASSERT_TRUE(frame.ok());
    EXPECT_FALSE(frame->has_value());
  });
  ends.a.Shutdown();
  receiving.join();
  EXPECT_EQ(ends.b.SendFrame("x", Soon()).code(), Code::kUnavailable) << "and no SIGPIPE";
}

TEST(UnixSocketTest, DescriptorsTravelWithTheirFrame) {
  const size_t before = OpenFdCount();
  {
    Ends ends = MakeEnds();
    const auto file = MemoryFile::CreateAnonymous("shared", 4096);
    ASSERT_TRUE(file.ok());
    {
      const auto mapping = file->Map(MapAccess::kReadWrite);
      std::memcpy(mapping->data(), "payload", 7);
    }
    const auto reader = file->ReopenReadOnly();
    const std::vector<int> fds = {reader->get(), file->fd()};
    ASSERT_TRUE(ends.a.SendFrame("first", Soon(), fds).ok());
    ASSERT_TRUE(ends.a.SendFrame("second", Soon()).ok());
    ASSERT_TRUE(ends.a.SendFrame("", Soon(), std::span(fds).first(1)).ok());
    auto first = ends.b.ReceiveReply(Soon());
    ASSERT_TRUE(first.ok());
    ASSERT_EQ(first->fds.size(), 2u);
    EXPECT_EQ(::fcntl(first->fds[0].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    const auto received = MemoryFile::Adopt(std::move(first->fds[0]), 4096);
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(std::memcmp(received->Map(MapAccess::kReadOnly)->data(), "payload", 7), 0);
    EXPECT_FALSE(received->Map(MapAccess::kReadWrite).ok());
    const auto second = ends.b.ReceiveReply(Soon());
    EXPECT_EQ(second->bytes, "second");
    EXPECT_TRUE(second->fds.empty());
    EXPECT_EQ(ends.b.ReceiveReply(Soon())->fds.size(), 1u);
    // One that nobody receives dies with the socket.
    ASSERT_TRUE(ends.a.SendFrame("unread", Soon(), fds).ok());
  }
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(UnixSocketTest, MostDescriptorsAndOneMore) {
  const size_t before = OpenFdCount();
  {
    Ends ends = MakeEnds();
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const std::vector<int> most(kFrameFdsMax, null.get());
    ASSERT_TRUE(ends.a.SendFrame("most", Soon(), most).ok());
    EXPECT_EQ(ends.b.ReceiveReply(Soon())->fds.size(), kFrameFdsMax);
    const std::vector<int> more(kFrameFdsMax + 1, null.get());
    const Status refused = ends.a.SendFrame("more", Soon(), more);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr("at most 253 descriptors, got 254"));
    EXPECT_EQ(ends.a.SendFrame("bad", Soon(), std::vector<int>{1'000'000}).code(), Code::kInternal);
    ASSERT_TRUE(ends.a.SendFrame("after", Soon()).ok());
    EXPECT_EQ(ends.b.ReceiveReply(Soon())->bytes, "after");
  }
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(UnixSocketTest, ReceiverOutOfDescriptorsIsToldAndLeaksNone) {
  const size_t before = OpenFdCount();
  {
    Ends ends = MakeEnds();
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const std::vector<int> fds(40, null.get());
    ASSERT_TRUE(ends.a.SendFrame("many", Soon(), fds).ok());
    rlimit old_limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old_limit), 0);
    const rlimit tight{.rlim_cur = static_cast<rlim_t>(null.get()) + 10,
                       .rlim_max = old_limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    const auto frame = ends.b.ReceiveFrame(Soon());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old_limit), 0);
    EXPECT_EQ(frame.status().code(), Code::kExhausted);
    EXPECT_EQ(ends.b.ReceiveFrame(Soon()).status().code(), Code::kUnavailable);
  }
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(UnixSocketTest, RandomBytesNeverHangOrCrash) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const size_t before = OpenFdCount();
  for (int round = 0; round < 300; ++round) {
    Ends ends = MakeEnds();
    std::string noise(random() % 64, '\0');
    for (char& byte : noise) byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
    if (!noise.empty()) SendRaw(ends.a, noise);
    ends.a.Shutdown();
    for (;;) {
      const auto frame = ends.b.ReceiveFrame(Soon());
      if (!frame.ok() || !frame->has_value()) break;
      ASSERT_LE((*frame)->bytes.size(), noise.size());
    }
  }
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(UnixListenerTest, PathsThatCannotServe) {
  const TestFolder folder;
  const auto too_long = UnixListener::Listen(folder / std::string(200, 'x'));
  EXPECT_EQ(too_long.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(too_long.status().message(), HasSubstr("expected 1 to 107"));
  ASSERT_TRUE(WriteFileDurably(folder / "file", "precious").ok());
  EXPECT_EQ(UnixListener::Listen(folder / "file").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*ReadFile(folder / "file"), "precious");
  EXPECT_EQ(UnixListener::Listen(folder / "no/s").status().code(), Code::kNotFound);
  const auto nobody = UnixSocket::Connect(folder / "none", Soon());
  EXPECT_EQ(nobody.status().code(), Code::kUnavailable);
  EXPECT_THAT(nobody.status().message(), HasSubstr(folder / "none"));
}

TEST(UnixListenerTest, StaleFileIsReplacedAndALiveOneIsNot) {
  const TestFolder folder;
  const std::string path = folder / "s";
  {
    // A listener whose process died: bound, never unlinked.
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_EQ(UnixSocket::Connect(path, Soon()).status().code(), Code::kUnavailable);
  {
    auto listener = UnixListener::Listen(path);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    const auto second = UnixListener::Listen(path);
    EXPECT_EQ(second.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(second.status().message(), HasSubstr("another process serves it"));
    EXPECT_TRUE(UnixSocket::Connect(path, Soon()).ok());
  }
  EXPECT_FALSE(*PathExists(path));
}

TEST(UnixListenerTest, DeadlineAndCrowds) {
  const TestFolder folder;
  auto listener = UnixListener::Listen(folder / "s");
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(listener->Accept(Deadline::AfterMs(1)).status().code(), Code::kUnavailable);
  constexpr int kClients = 16;
  std::vector<std::thread> clients;
  clients.reserve(kClients);
  std::atomic<int> answered{0};
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      auto socket = UnixSocket::Connect(folder / "s", Soon());
      ASSERT_TRUE(socket.ok());
      ASSERT_TRUE(socket->SendFrame(std::to_string(i), Soon()).ok());
      const auto reply = socket->ReceiveReply(Soon());
      ASSERT_TRUE(reply.ok());
      EXPECT_EQ(reply->bytes, "re " + std::to_string(i));
      ++answered;
    });
  }
  for (int i = 0; i < kClients; ++i) {
    auto socket = listener->Accept(Soon());
    ASSERT_TRUE(socket.ok());
    const auto request = socket->ReceiveReply(Soon());
    ASSERT_TRUE(request.ok());
    ASSERT_TRUE(socket->SendFrame("re " + request->bytes, Soon()).ok());
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(answered, kClients);
}

}  // namespace
}  // namespace mooncake::env
