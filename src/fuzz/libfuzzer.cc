// libFuzzer's entry: one decoder for the life of the process, named by MOONCAKE_FUZZ_DECODER. Its
// seeds are written into the folder MOONCAKE_FUZZ_SEEDS first, if that is set. See ./x fuzz.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "fuzz/decoders.h"

namespace {

const mooncake::fuzz::Decoder* g_decoder = nullptr;

void WriteSeeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : g_decoder->seeds()) {
    const std::string path = folder + "/seed-" + std::to_string(number++);
    std::FILE* file = std::fopen(path.c_str(), "wb");
    MC_CHECK(file != nullptr);
    MC_CHECK(std::fwrite(seed.data(), 1, seed.size(), file) == seed.size());
    MC_CHECK(std::fclose(file) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  static const google::protobuf::LogSilencer quiet;
  const char* name = std::getenv("MOONCAKE_FUZZ_DECODER");
  for (const mooncake::fuzz::Decoder& decoder : mooncake::fuzz::Decoders()) {
    if (name != nullptr && decoder.name == name) g_decoder = &decoder;
  }
  if (g_decoder == nullptr) {
    std::fprintf(stderr, "MOONCAKE_FUZZ_DECODER names no decoder; there are:\n");
    for (const mooncake::fuzz::Decoder& decoder : mooncake::fuzz::Decoders()) {
      std::fprintf(stderr, "  %.*s\n", static_cast<int>(decoder.name.size()), decoder.name.data());
    }
    std::exit(2);
  }
  if (const char* folder = std::getenv("MOONCAKE_FUZZ_SEEDS")) WriteSeeds(folder);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  g_decoder->feed({reinterpret_cast<const char*>(data), size});
  return 0;
}
