#include "node/slab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <semaphore>
#include <thread>

#include "env/memory_file.h"
#include "env/test_folder.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;
using transfer::ExtentHeader;

constexpr uint64_t kSlabBytes = 1 << 20;

// Every byte tells its object and its place.
std::byte ByteOf(uint64_t object_id, uint64_t at) {
  return static_cast<std::byte>(object_id * 131 + at * 7 + at / 251);
}

FillParts FillOf(uint64_t object_id, std::span<const ExtentPiece> pieces) {
  return [object_id, pieces](std::span<const ExtentPart> parts) {
    for (const ExtentPart& part : parts) {
      for (uint64_t i = 0; i < part.bytes; ++i) {
        part.target[i] = ByteOf(object_id, pieces[part.piece].at + i);
      }
    }
    return OkStatus();
  };
}

FillParts NothingToFill() {
  return [](std::span<const ExtentPart>) { return Internal("nothing was to be filled"); };
}

class SlabTest : public testing::Test {
 protected:
  SlabTest()
      : file_(env::MemoryFile::CreateAnonymous("slab", kSlabBytes).value()),
        reader_(file_.Map(env::MapAccess::kReadOnly).value()),
        slab_(file_.Map(env::MapAccess::kReadWrite).value()) {}

  Status Put(const ExtentOf& extent, std::vector<ExtentPiece> pieces, bool last,
             std::optional<uint64_t> xxh3 = {}) {
    return slab_.Write(extent, {pieces, last, xxh3}, FillOf(extent.object_id, pieces));
  }
  Status PutWhole(const ExtentOf& extent, std::optional<uint64_t> xxh3 = {}) {
    return Put(extent, {{0, extent.bytes}}, true, xxh3);
  }
  Result<std::string> Get(const ExtentOf& extent) {
    std::string content;
    const auto read = slab_.Read(extent, 0, extent.bytes, &content);
    if (!read.ok()) return read.status();
    return content;
  }
  static std::string ContentOf(const ExtentOf& extent) {
    std::string content(extent.bytes, '\0');
    for (uint64_t i = 0; i < extent.bytes; ++i) {
      content[i] = static_cast<char>(ByteOf(extent.object_id, i));
    }
    return content;
  }
  // As a client that maps the slab sees it.
  const ExtentHeader& HeaderAt(uint64_t offset) const {
    return *reinterpret_cast<const ExtentHeader*>(reader_.data() + offset);
  }
  std::string MappedAt(uint64_t offset, uint64_t bytes) const {
    return {reinterpret_cast<const char*>(reader_.data() + offset + 64), bytes};
  }

  env::MemoryFile file_;
  env::Mapping reader_;
  Slab slab_;
};

TEST_F(SlabTest, AnExtentIsReadableOnceItIsWhole) {
  const ExtentOf extent{4096, 1000, 7};
  ASSERT_TRUE(Put(extent, {{0, 400}}, false).ok());
  EXPECT_EQ(HeaderAt(4096).object_id, 0u);
  EXPECT_EQ(Get(extent).status().code(), Code::kNotFound);
  const Status early = Put(extent, {{500, 100}}, true);
  EXPECT_EQ(early.code(), Code::kInvalidArgument);
  EXPECT_THAT(early.message(), HasSubstr("expected all 1000 bytes with the last piece, got 500"));
  EXPECT_EQ(HeaderAt(4096).object_id, 0u);
  ASSERT_TRUE(Put(extent, {{600, 400}, {400, 100}}, true, 0x1122334455667788).ok());

  const ExtentHeader& header = HeaderAt(4096);
  EXPECT_EQ(header.object_id, 7u);
  EXPECT_EQ(header.payload_bytes, 1000u);
  EXPECT_EQ(header.magic, ExtentHeader::kMagic);
  EXPECT_EQ(header.flags, ExtentHeader::kHasChecksum);
  EXPECT_EQ(header.xxh3, 0x1122334455667788u);
  for (const uint64_t zero : header.zeros) EXPECT_EQ(zero, 0u);
  EXPECT_TRUE(MappedAt(4096, 1000) == ContentOf(extent));
  EXPECT_TRUE(Get(extent).value() == ContentOf(extent));

  std::string some = "before";
  const auto checksum = slab_.Read(extent, 990, 10, &some);
  ASSERT_TRUE(checksum.ok());
  EXPECT_EQ(**checksum, 0x1122334455667788u);
  EXPECT_EQ(some, "before" + ContentOf(extent).substr(990));
}

TEST_F(SlabTest, ARepeatedPieceOrPutChangesNothing) {
  const ExtentOf extent{0, 100, 7};
  ASSERT_TRUE(Put(extent, {{0, 60}}, false).ok());
  // Only what is missing is asked for.
  const std::vector<ExtentPiece> both = {{0, 60}, {60, 40}};
  size_t asked = 0;
  ASSERT_TRUE(slab_
                  .Write(extent, {both, true, {}},
                         [&](std::span<const ExtentPart> parts) {
                           asked = parts.size();
                           EXPECT_EQ(parts[0].piece, 1u);
                           return FillOf(7, both)(parts);
                         })
                  .ok());
  EXPECT_EQ(asked, 1u);
  ASSERT_TRUE(slab_.Write(extent, {both, true, {}}, NothingToFill()).ok());
  // Of a whole extent nothing is judged any more, nor its checksum replaced.
  ASSERT_TRUE(slab_.Write(extent, {{}, true, 5}, NothingToFill()).ok());
  EXPECT_EQ(HeaderAt(0).flags, 0u);
  EXPECT_TRUE(Get(extent).value() == ContentOf(extent));
}

TEST_F(SlabTest, WhatNoPieceBroughtIsZeros) {
  ASSERT_TRUE(PutWhole({0, 1000, 1}).ok());  // what lies there before
  const ExtentOf extent{0, 1000, 2};
  ASSERT_TRUE(Put(extent, {{700, 100}, {100, 50}}, false).ok());
  const ExtentFill end{.pieces = {}, .last = true, .xxh3 = {}, .zero_rest = true};
  EXPECT_EQ(slab_.Write(extent, {{}, true, {}, false}, NothingToFill()).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(slab_.Write(extent, end, NothingToFill()).ok());
  const Result<std::string> got = Get(extent);
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  for (uint64_t i = 0; i < extent.bytes; ++i) {
    const bool brought = (i >= 700 && i < 800) || (i >= 100 && i < 150);
    ASSERT_EQ(static_cast<std::byte>((*got)[i]), brought ? ByteOf(2, i) : std::byte{0}) << i;
  }
  ASSERT_TRUE(slab_.Write(extent, end, NothingToFill()).ok());  // again
  const ExtentOf empty{2048, 77, 3};
  ASSERT_TRUE(slab_.Write(empty, end, NothingToFill()).ok());
  EXPECT_EQ(*Get(empty), std::string(77, '\0'));
}

TEST_F(SlabTest, PiecesThatAreRefused) {
  const ExtentOf extent{0, 100, 7};
  ASSERT_TRUE(Put(extent, {{20, 20}}, false).ok());
  const auto refused = [&](std::vector<ExtentPiece> pieces, const std::string& why) {
    const Status status = slab_.Write(extent, {pieces, false, {}}, NothingToFill());
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused({{20, 19}}, "the piece [20, +19) overlaps the piece [20, +20)");
  refused({{19, 2}}, "[19, +2) overlaps the piece [20, +20)");
  refused({{39, 2}}, "[39, +2) overlaps");
  refused({{10, 80}}, "[10, +80) overlaps");
  refused({{25, 1}}, "[25, +1) overlaps");
  refused({{50, 10}, {59, 10}}, "[59, +10) overlaps the piece [50, +10)");
  refused({{50, 10}, {50, 10}}, "overlaps");
  refused({{90, 11}}, "leaves the payload of 100 bytes");
  refused({{101, 0}}, "leaves the payload");
  refused({{UINT64_MAX, 2}}, "leaves the payload");
  refused({{2, UINT64_MAX}}, "leaves the payload");
  // None of them counts, and a piece of no bytes neither.
  ASSERT_TRUE(Put(extent, {{0, 20}, {50, 0}, {40, 60}}, true).ok());
  EXPECT_TRUE(Get(extent).value() == ContentOf(extent));
}

TEST_F(SlabTest, AnExtentComesInSoManyPiecesAtMost) {
  const ExtentOf extent{0, Slab::kPiecesMax + 1, 7};
  std::vector<ExtentPiece> pieces(Slab::kPiecesMax);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = {pieces.size() - 1 - i, 1};
  ASSERT_TRUE(Put(extent, pieces, false).ok());
  const Status more = Put(extent, {{Slab::kPiecesMax, 1}}, true);
  EXPECT_EQ(more.code(), Code::kInvalidArgument);
  EXPECT_THAT(more.message(), HasSubstr("at most 65536 pieces, got 65537"));
}

TEST_F(SlabTest, ExtentsThatAreRefused) {
  const auto refused = [&](const ExtentOf& extent, const std::string& why) {
    const Status status = PutWhole(extent);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused({32, 1, 7}, "multiples of 64");
  refused({0, 1, 0}, "got 0");
  refused({0, 0, 7}, "a payload of 0 do not lie");
  refused({kSlabBytes, 1, 7}, "do not lie in a slab of 1048576");
  refused({kSlabBytes - 64, 1, 7}, "do not lie");
  refused({kSlabBytes - 128, 65, 7}, "do not lie");
  refused({0, UINT64_MAX, 7}, "do not lie");
  refused({UINT64_MAX / 64 * 64, 64, 7}, "do not lie");
  EXPECT_EQ(slab_.extent_count(), 0u);
  EXPECT_TRUE(PutWhole({kSlabBytes - 128, 64, 7}).ok());
  // The same object elsewhere, or of another size.
  ASSERT_TRUE(PutWhole({128, 100, 9}).ok());
  refused({128, 101, 9}, "the object is at 128 with 100 bytes");
  refused({64, 100, 9}, "the object is at 128");
}

TEST_F(SlabTest, ReadsThatAreRefused) {
  const ExtentOf extent{0, 100, 7};
  ASSERT_TRUE(PutWhole(extent).ok());
  std::string content = "kept";
  const auto refused = [&](const ExtentOf& wanted, uint64_t from, uint64_t count, Code code) {
    EXPECT_EQ(slab_.Read(wanted, from, count, &content).status().code(), code);
  };
  refused({0, 100, 8}, 0, 1, Code::kNotFound);
  refused({64, 100, 7}, 0, 1, Code::kNotFound);
  refused({0, 99, 7}, 0, 1, Code::kInvalidArgument);
  refused(extent, 100, 1, Code::kInvalidArgument);
  refused(extent, 1, 100, Code::kInvalidArgument);
  refused(extent, UINT64_MAX, 2, Code::kInvalidArgument);
  refused(extent, 2, UINT64_MAX, Code::kInvalidArgument);
  EXPECT_EQ(content, "kept");
  EXPECT_TRUE(slab_.Read(extent, 100, 0, &content).ok());
}

TEST_F(SlabTest, OlderObjectsGiveWayWhereverTheyOverlap) {
  // Three extents of 64 + 192 bytes side by side, a fourth apart.
  for (uint64_t i = 0; i < 4; ++i)
    ASSERT_TRUE(PutWhole({256 * i + (i == 3 ? 64 : 0), 192, i + 1}).ok());
  // From the middle of the first to the middle of the third.
  const ExtentOf wide{128, 512 - 64, 9};
  bool asked = false;
  ASSERT_TRUE(slab_
                  .Write(wide, {std::vector<ExtentPiece>{{0, wide.bytes}}, true, {}},
                         [&](std::span<const ExtentPart> parts) {
                           asked = true;
                           // Before the first byte changes.
                           for (const uint64_t at : {0, 256, 512}) {
                             EXPECT_EQ(HeaderAt(at).object_id, 0u) << at;
                           }
                           EXPECT_EQ(HeaderAt(128).object_id, 0u);
                           EXPECT_EQ(HeaderAt(832).object_id, 4u);
                           const std::vector<ExtentPiece> whole = {{0, wide.bytes}};
                           return FillOf(9, whole)(parts);
                         })
                  .ok());
  EXPECT_TRUE(asked);
  EXPECT_EQ(slab_.extent_count(), 2u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Get({256 * i, 192, i + 1}).status().code(), Code::kNotFound);
  }
  EXPECT_EQ(HeaderAt(0).object_id, 0u);
  EXPECT_TRUE(Get(wide).value() == ContentOf(wide));
  EXPECT_TRUE(Get({832, 192, 4}).value() == ContentOf({832, 192, 4}));
}

TEST_F(SlabTest, ALateWriterChangesNothing) {
  const ExtentOf old{0, 192, 5};
  ASSERT_TRUE(PutWhole(old).ok());
  const ExtentOf young{256, 192, 6};
  ASSERT_TRUE(Put(young, {{0, 100}}, false).ok());
  for (const ExtentOf& late :
       {ExtentOf{256, 192, 4}, ExtentOf{128, 192, 5}, ExtentOf{384, 500, 3}, ExtentOf{0, 400, 4}}) {
    const Status status =
        slab_.Write(late, {std::vector<ExtentPiece>{{0, late.bytes}}, true, {}}, NothingToFill());
    // The object that is there already is at another place: no late writer, but a wrong one.
    EXPECT_EQ(status.code(), late.object_id == 5 ? Code::kInvalidArgument : Code::kNotFound)
        << status.ToString();
  }
  EXPECT_TRUE(Get(old).value() == ContentOf(old));
  ASSERT_TRUE(Put(young, {{100, 92}}, true).ok());
  EXPECT_TRUE(Get(young).value() == ContentOf(young));
}

TEST_F(SlabTest, AFailedFillCountsForNothing) {
  const ExtentOf extent{0, 100, 7};
  const std::vector<ExtentPiece> whole = {{0, 100}};
  const Status failed =
      slab_.Write(extent, {whole, true, {}}, [](std::span<const ExtentPart> parts) {
        std::memset(parts[0].target, 0xee, 50);
        return Unavailable("the writer went away");
      });
  EXPECT_EQ(failed, Unavailable("the writer went away"));
  EXPECT_EQ(HeaderAt(0).object_id, 0u);
  EXPECT_EQ(slab_.Write(extent, {{}, true, {}}, NothingToFill()).code(), Code::kInvalidArgument);
  ASSERT_TRUE(PutWhole(extent).ok());
  EXPECT_TRUE(Get(extent).value() == ContentOf(extent));
}

// A younger object waits until the copy of the older one is over, and that one learns it has lost.
TEST_F(SlabTest, ARunningWriterIsWaitedForAndRefused) {
  std::binary_semaphore filling(0);
  std::binary_semaphore go_on(0);
  const std::vector<ExtentPiece> whole = {{0, 100}};
  Status old;
  std::thread slow([&] {
    old = slab_.Write({0, 100, 1}, {whole, true, {}}, [&](std::span<const ExtentPart> parts) {
      filling.release();
      go_on.acquire();
      return FillOf(1, whole)(parts);
    });
  });
  filling.acquire();
  // Within the bound of a turn it does not end, and says so.
  const Status busy = slab_.Write({0, 100, 2}, {whole, true, {}}, NothingToFill());
  EXPECT_EQ(busy.code(), Code::kBusy);
  EXPECT_THAT(busy.message(), HasSubstr("what it overwrites stayed in use"));
  Status young;
  std::thread waiting([&] { young = PutWhole({0, 100, 2}); });
  go_on.release();
  waiting.join();
  slow.join();
  EXPECT_EQ(old.code(), Code::kNotFound) << old.ToString();
  EXPECT_TRUE(young.ok()) << young.ToString();
  EXPECT_TRUE(Get({0, 100, 2}).value() == ContentOf({0, 100, 2}));
  EXPECT_EQ(HeaderAt(0).object_id, 2u);
}

// Two calls of one put, as when the first one's connection broke: bytes are copied once.
TEST_F(SlabTest, CallsOfOnePutTakeTurns) {
  std::binary_semaphore filling(0);
  std::binary_semaphore go_on(0);
  const std::vector<ExtentPiece> whole = {{0, 100}};
  std::thread first([&] {
    EXPECT_TRUE(slab_
                    .Write({0, 100, 1}, {whole, true, {}},
                           [&](std::span<const ExtentPart> parts) {
                             filling.release();
                             go_on.acquire();
                             return FillOf(1, whole)(parts);
                           })
                    .ok());
  });
  filling.acquire();
  std::thread second([&] {
    EXPECT_TRUE(slab_.Write({0, 100, 1}, {whole, true, {}}, NothingToFill()).ok());
  });
  go_on.release();
  first.join();
  second.join();
  EXPECT_TRUE(Get({0, 100, 1}).value() == ContentOf({0, 100, 1}));
}

TEST_F(SlabTest, ARepetitionDoesNotWaitForReaders) {
  const ExtentOf extent{0, 100, 1};
  ASSERT_TRUE(PutWhole(extent).ok());
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) EXPECT_TRUE(Get(extent).ok());
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(slab_.Write(extent, {{}, true, {}}, NothingToFill()).ok());
  }
  done = true;
  reader.join();
}

TEST_F(SlabTest, GivenUpAsAWhole) {
  const ExtentOf extent{128, 100, 1};
  ASSERT_TRUE(PutWhole(extent).ok());
  ASSERT_TRUE(PutWhole({1024, 100, 2}).ok());
  slab_.GiveUpAll();
  EXPECT_EQ(HeaderAt(128).object_id, 0u);
  EXPECT_EQ(HeaderAt(1024).object_id, 0u);
  EXPECT_EQ(Get(extent).status().code(), Code::kNotFound);
}

// As client::ObjectClient reads a mapped slab; see transfer/extent_header.h.
bool ReadMapped(const env::Mapping& mapping, const ExtentOf& extent, std::string* content) {
  const auto& header = *reinterpret_cast<const ExtentHeader*>(mapping.data() + extent.offset);
  if (header.object_id.load(std::memory_order_acquire) != extent.object_id) return false;
  content->assign(reinterpret_cast<const char*>(mapping.data() + extent.offset + 64), extent.bytes);
  std::atomic_thread_fence(std::memory_order_acquire);
  return header.object_id.load(std::memory_order_relaxed) == extent.object_id;
}

// A writer keeps replacing objects by others that overlap them in every way, while readers copy
// through their own mapping, and through the slab: what they accept is always the object's.
TEST_F(SlabTest, ReadersNeverAcceptForeignBytes) {
  struct Offered {
    std::atomic<uint64_t> offset;
    std::atomic<uint64_t> bytes;
    std::atomic<uint64_t> object_id = 0;
  };
  constexpr int kObjects = 4000;
  std::array<Offered, 4> offered;
  std::atomic<bool> done = false;
  std::atomic<uint64_t> accepted = 0;
  std::atomic<uint64_t> foreign = 0;
  std::vector<std::thread> readers;
  for (size_t r = 0; r < 4; ++r) {
    readers.emplace_back([&, r] {
      std::string content;
      for (size_t turn = r; !done || turn < r + 100; ++turn) {
        const Offered& next = offered[turn % offered.size()];
        const uint64_t object_id = next.object_id;
        const ExtentOf extent{next.offset, next.bytes, object_id};
        if (object_id == 0 || next.object_id != object_id) continue;
        content.clear();
        const bool ok = r % 2 == 0 ? ReadMapped(reader_, extent, &content)
                                   : slab_.Read(extent, 0, extent.bytes, &content).ok();
        if (!ok) continue;
        accepted++;
        foreign += content != ContentOf(extent);
      }
    });
  }
  uint64_t seed = 12345;
  for (uint64_t id = 1; id <= kObjects; ++id) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    const ExtentOf extent{(seed >> 33) % 64 * 64, 1 + (seed >> 40) % 20'000, id};
    ASSERT_TRUE(PutWhole(extent).ok());
    Offered& next = offered[id % offered.size()];
    next.object_id = 0;
    next.offset = extent.offset;
    next.bytes = extent.bytes;
    next.object_id = id;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(foreign, 0u);
  EXPECT_GT(accepted, 0u);
}

// Every write ends in one of two ways, and the memory shows it.
TEST_F(SlabTest, WritersOfManyExtentsAtOnce) {
  constexpr uint64_t kThreads = 6;
  constexpr uint64_t kRounds = 300;
  std::atomic<uint64_t> next_id = 1;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // An extent of its own, and one that all fight for.
      for (uint64_t round = 0; round < kRounds; ++round) {
        const ExtentOf own{(t + 2) * 8192, 4000, next_id++};
        wrong += !PutWhole(own).ok();
        const ExtentOf common{round % 3 * 64, 3000, next_id++};
        const Status status = PutWhole(common);
        wrong += !status.ok() && status.code() != Code::kNotFound;
        const auto content = Get(own);
        wrong += !content.ok() || *content != ContentOf(own);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(slab_.extent_count(), kThreads + 1);
}

class DurableSlabTest : public testing::Test {
 protected:
  void SetUp() override { (void)env::MemoryFile::CreateFile(slab_path_, kSlabBytes).value(); }
  std::unique_ptr<Slab> Open(bool fresh) {
    auto file = env::MemoryFile::OpenFile(slab_path_, env::MapAccess::kReadWrite);
    auto index = fresh ? ExtentIndex::Create(index_path_, kSlabBytes)
                       : ExtentIndex::Open(index_path_, kSlabBytes);
    EXPECT_TRUE(index.ok()) << index.status().ToString();
    return std::make_unique<Slab>(file->Map(env::MapAccess::kReadWrite).value(), *std::move(index));
  }
  static void Put(Slab& slab, const ExtentOf& extent, uint64_t bytes, bool last) {
    const std::vector<ExtentPiece> pieces = {{0, bytes}};
    const Status put = slab.Write(extent, {pieces, last, {}}, FillOf(extent.object_id, pieces));
    ASSERT_TRUE(put.ok()) << put.ToString();
  }

  env::TestFolder folder_;
  const std::string slab_path_ = folder_ / "slab";
  const std::string index_path_ = folder_ / "index";
};

TEST_F(DurableSlabTest, WhatWasWholeIsFoundAgain) {
  {
    const auto slab = Open(/*fresh=*/true);
    Put(*slab, {0, 1000, 1}, 1000, true);
    Put(*slab, {1088, 100, 2}, 100, true);
    Put(*slab, {8192, 100, 3}, 50, false);            // never finished
    Put(*slab, {512, 64, 4}, 64, true);               // over the first
    Put(*slab, {kSlabBytes - 128, 64, 5}, 64, true);  // the last place there is
    EXPECT_TRUE(slab->Sync().ok());
  }
  const auto slab = Open(/*fresh=*/false);
  EXPECT_EQ(slab->extent_count(), 3u);
  std::string content;
  EXPECT_EQ(slab->Read({0, 1000, 1}, 0, 1, &content).status().code(), Code::kNotFound);
  EXPECT_EQ(slab->Read({8192, 100, 3}, 0, 1, &content).status().code(), Code::kNotFound);
  for (const ExtentOf& extent :
       {ExtentOf{1088, 100, 2}, ExtentOf{512, 64, 4}, ExtentOf{kSlabBytes - 128, 64, 5}}) {
    content.clear();
    ASSERT_TRUE(slab->Read(extent, 0, extent.bytes, &content).ok()) << extent.object_id;
    for (uint64_t i = 0; i < extent.bytes; ++i) {
      ASSERT_EQ(static_cast<std::byte>(content[i]), ByteOf(extent.object_id, i));
    }
  }
  // Ids go on growing: what was there before the restart counts as older, wherever it begins.
  Put(*slab, {1152, 300, 6}, 300, true);
  EXPECT_EQ(slab->Read({1088, 100, 2}, 0, 1, &content).status().code(), Code::kNotFound);
}

// A payload may look like a header: only the index tells.
TEST_F(DurableSlabTest, AHeaderInsideAPayloadIsNone) {
  const ExtentOf extent{0, 4096, 1};
  {
    const auto slab = Open(/*fresh=*/true);
    const std::vector<ExtentPiece> pieces = {{0, 4096}};
    ASSERT_TRUE(slab->Write(extent, {pieces, true, {}},
                            [](std::span<const ExtentPart> parts) {
                              for (uint64_t at = 0; at < 4096; at += 64) {
                                auto* fake = new (parts[0].target + at) ExtentHeader();
                                fake->object_id = 99;
                                fake->payload_bytes = 100'000;
                                fake->magic = ExtentHeader::kMagic;
                              }
                              return OkStatus();
                            })
                    .ok());
  }
  const auto slab = Open(/*fresh=*/false);
  EXPECT_EQ(slab->extent_count(), 1u);
  Put(*slab, {8192, 100, 2}, 100, true);
  std::string content;
  ASSERT_TRUE(slab->Read(extent, 0, 4096, &content).ok());
  for (uint64_t at = 0; at < 4096; at += 64) {
    const uint64_t id = 99;
    EXPECT_EQ(std::memcmp(content.data() + at, &id, sizeof id), 0);
  }
}

TEST_F(DurableSlabTest, AnIndexOfAnotherSlabIsCorrupt) {
  (void)Open(/*fresh=*/true);
  const Status other = ExtentIndex::Open(index_path_, 2 * kSlabBytes).status();
  EXPECT_EQ(other.code(), Code::kCorrupt);
  EXPECT_THAT(other.message(), HasSubstr("a slab of 2097152 bytes has 4104 bytes, got 2056"));
  EXPECT_EQ(ExtentIndex::Open(folder_ / "none", kSlabBytes).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace mooncake::node
