#include "env/peer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <numeric>
#include <vector>

#include "env/mapping.h"
#include "env/test_folder.h"
#include "env/unix_socket.h"

namespace mooncake::env {
namespace {

using testing::HasSubstr;

constexpr uint64_t kBytes = 3 << 20;

std::byte ByteAt(uint64_t at) { return static_cast<std::byte>(at * 7 + at / 4096 + 1); }

// A child that runs `prepare` and then waits until its test is over; what it writes stays its own.
class Child {
 public:
  explicit Child(const std::function<void()>& prepare) {
    std::array<int, 2> pipe{};
    MC_CHECK(::pipe(pipe.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prepare();
      (void)!::write(pipe[1], "r", 1);
      for (;;) ::pause();
    }
    char ready = 0;
    MC_CHECK(::read(pipe[0], &ready, 1) == 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  ~Child() { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

class PeerMemoryTest : public testing::Test {
 protected:
  static uint64_t AddressOf(const std::byte* at) { return reinterpret_cast<uint64_t>(at); }
  void FillOwn() {
    for (uint64_t at = 0; at < kBytes; ++at) memory_.data()[at] = ByteAt(at);
  }
  Mapping memory_ = Mapping::Anonymous(kBytes).value();
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
};

TEST_F(PeerMemoryTest, RangesOfAnotherProcess) {
  const Child child([this] { FillOwn(); });
  ASSERT_EQ(memory_.data()[5], std::byte{0});
  const auto peer = PeerProcess::Open(child.pid());
  ASSERT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_EQ(peer->pid(), child.pid());
  // More ranges than one call takes, of many sizes, none among them, in another order.
  std::vector<PeerRange> ranges;
  uint64_t at = 0;
  for (uint64_t i = 0; at < kBytes; ++i) {
    const uint64_t bytes = std::min<uint64_t>(i % 5 == 4 ? 0 : i % 1500 + 1, kBytes - at);
    ranges.push_back({AddressOf(memory_.data()) + at, target_.data() + at, bytes});
    at += bytes;
  }
  ASSERT_GT(ranges.size(), 3000u);
  std::reverse(ranges.begin(), ranges.end());
  const Status read = peer->Read(ranges);
  ASSERT_TRUE(read.ok()) << read.ToString();
  for (uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(target_[i], ByteAt(i)) << i;
  EXPECT_TRUE(peer->Read({}).ok());
}

TEST_F(PeerMemoryTest, MemoryThatIsNotThere) {
  const Child child([this] {
    FillOwn();
    ::munmap(memory_.data() + kBytes / 2, kBytes / 2);
  });
  const auto peer = PeerProcess::Open(child.pid());
  ASSERT_TRUE(peer.ok());
  const auto refused = [&](uint64_t address, uint64_t bytes) {
    const PeerRange range{address, target_.data(), bytes};
    const Status status = peer->Read({&range, 1});
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
    return status.message();
  };
  const uint64_t begin = AddressOf(memory_.data());
  EXPECT_THAT(refused(0, 8), HasSubstr("read 8 bytes at address 0 of process"));
  EXPECT_THAT(refused(0, 8), HasSubstr("EFAULT"));
  refused(UINT64_MAX - 3, 8);
  refused(uint64_t{1} << 60, 1);
  // The part that is there does not make it whole; the message says where it ends.
  const std::string cut = refused(begin + kBytes / 2 - 4096, 8192);
  EXPECT_THAT(cut, HasSubstr("read 4096 bytes at address " + std::to_string(begin + kBytes / 2)));
  // The same, as one of many.
  const std::vector<PeerRange> ranges = {{begin, target_.data(), 100},
                                         {begin + kBytes - 1, target_.data() + 100, 1}};
  EXPECT_EQ(peer->Read(ranges).code(), Code::kInvalidArgument);
  const PeerRange good{begin, target_.data(), kBytes / 2};
  EXPECT_TRUE(peer->Read({&good, 1}).ok());
}

TEST_F(PeerMemoryTest, AProcessThatEnded) {
  Child child([this] { FillOwn(); });
  const auto peer = PeerProcess::Open(child.pid());
  ASSERT_TRUE(peer.ok());
  const pid_t pid = child.pid();
  child.Kill();
  const PeerRange range{AddressOf(memory_.data()), target_.data(), 8};
  EXPECT_EQ(peer->Read({&range, 1}).code(), Code::kUnavailable);
  // Also where its id would be another's by now: the check does not ask by id.
  EXPECT_EQ(peer->Read({}).code(), Code::kUnavailable);
  EXPECT_EQ(PeerProcess::Open(pid).status().code(), Code::kUnavailable);
  EXPECT_EQ(PeerProcess::Open(0).status().code(), Code::kUnsupported);
}

TEST_F(PeerMemoryTest, AProcessThatIsStoppedIsReadAllTheSame) {
  const Child child([this] { FillOwn(); });
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child.pid(), &status, WUNTRACED), child.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  const PeerRange range{AddressOf(memory_.data()), target_.data(), kBytes};
  EXPECT_TRUE(PeerProcess::Open(child.pid())->Read({&range, 1}).ok());
  EXPECT_EQ(target_[kBytes - 1], ByteAt(kBytes - 1));
}

TEST_F(PeerMemoryTest, TheKernelNamesWhoConnected) {
  const TestFolder folder;
  auto listener = UnixListener::Listen(folder / "s");
  ASSERT_TRUE(listener.ok());
  std::optional<UnixSocket> kept;
  const Child child([&] {
    FillOwn();
    kept = UnixSocket::Connect(folder / "s", Deadline::AfterMs(5000)).value();
  });
  const auto accepted = listener->Accept(Deadline::AfterMs(5000));
  ASSERT_TRUE(accepted.ok());
  const auto peer = PeerProcess::OfSocket(accepted->fd());
  ASSERT_TRUE(peer.ok()) << peer.status().ToString();
  EXPECT_EQ(peer->pid(), child.pid());
  const PeerRange range{AddressOf(memory_.data()) + 100, target_.data(), 100};
  ASSERT_TRUE(peer->Read({&range, 1}).ok());
  EXPECT_EQ(target_[99], ByteAt(199));
}

// Another user's process, as the kernel sees it.
TEST_F(PeerMemoryTest, WhatTheKernelForbidsIsUnsupported) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const Child root([this] { FillOwn(); });
  const pid_t reader = ::fork();
  if (reader == 0) {
    if (::setuid(65534) != 0) ::_exit(100);
    const auto peer = PeerProcess::Open(root.pid());
    const PeerRange range{AddressOf(memory_.data()), target_.data(), 8};
    ::_exit(static_cast<int>(peer.ok() ? peer->Read({&range, 1}).code() : peer.status().code()));
  }
  int status = 0;
  ::waitpid(reader, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(Code::kUnsupported));
}

}  // namespace
}  // namespace mooncake::env
