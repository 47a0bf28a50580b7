#include "base/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
// On x86-64 libxxhash also holds the AVX2 and AVX-512 forms and chooses at run time, but only
// behind these names: plain XXH3_128bits stays at SSE2, a quarter of the speed.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace mooncake {

struct Sha256::State {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  MC_CHECK(state_->context != nullptr);
  MC_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::Sha256(std::unique_ptr<State> state) : state_(std::move(state)) {}

Sha256 Sha256::Clone() const {
  auto state = std::make_unique<State>();
  state->context = EVP_MD_CTX_new();
  MC_CHECK(state->context != nullptr);
  MC_CHECK(EVP_MD_CTX_copy_ex(state->context, state_->context) == 1);
  return Sha256(std::move(state));
}

Sha256::~Sha256() { EVP_MD_CTX_free(state_->context); }

void Sha256::Update(const void* data, size_t bytes) {
  MC_CHECK(EVP_DigestUpdate(state_->context, data, bytes) == 1);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  unsigned length = 0;
  MC_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &length) == 1);
  MC_CHECK(length == digest.size());
  return digest;
}

namespace {

// Making a context costs more than hashing a short text with it, so each thread keeps one.
class ReusedContext {
 public:
  ReusedContext() : context_(EVP_MD_CTX_new()) {
    MC_CHECK(context_ != nullptr);
    MC_CHECK(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1);
  }
  ~ReusedContext() { EVP_MD_CTX_free(context_); }
  ReusedContext(const ReusedContext&) = delete;
  ReusedContext& operator=(const ReusedContext&) = delete;

  Sha256Digest Hash(std::string_view bytes) {
    Sha256Digest digest;
    unsigned length = 0;
    MC_CHECK(EVP_DigestInit_ex(context_, nullptr, nullptr) == 1);
    MC_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
    MC_CHECK(EVP_DigestFinal_ex(context_, digest.data(), &length) == 1);
    MC_CHECK(length == digest.size());
    return digest;
  }

 private:
  EVP_MD_CTX* const context_;
};

}  // namespace

Sha256Digest Sha256Of(std::string_view bytes) {
  thread_local ReusedContext context;
  return context.Hash(bytes);
}

Sha256Digest HmacSha256(std::string_view key, std::string_view bytes) {
  Sha256Digest digest;
  unsigned length = 0;
  MC_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(),
                &length) != nullptr);
  MC_CHECK(length == digest.size());
  return digest;
}

std::string HexOf(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(bytes.size() * 2, '0');
  size_t at = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    hex[at++] = kDigits[byte >> 4];
    hex[at++] = kDigits[byte & 15];
  }
  return hex;
}

std::string ToHex(const Sha256Digest& digest) {
  return HexOf({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

Result<Sha256Digest> Sha256FromHex(std::string_view hex) {
  Sha256Digest digest;
  const auto nibble = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (hex.size() != 64) {
    return InvalidArgument("a SHA-256 digest has 64 hex characters, got " +
                           std::to_string(hex.size()));
  }
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = nibble(hex[2 * i]);
    const int low = nibble(hex[2 * i + 1]);
    if (high < 0 || low < 0) return InvalidArgument("a SHA-256 digest must be lowercase hex");
    digest[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

namespace {

// The library chooses its instructions in the first call for a long input, without a lock: one
// thread makes the choice here.
void ChooseKernels() {
  static const bool chosen = [] {
    const std::array<char, 1024> zeros{};
    return XXH3_128bits(zeros.data(), zeros.size()).low64 != 0;
  }();
  MC_CHECK(chosen);
}

}  // namespace

BlockDigest BlockDigestOf(const void* data, size_t bytes) {
  ChooseKernels();
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, bytes));
  BlockDigest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
  return digest;
}

uint64_t Xxh3Of(const void* data, size_t bytes) {
  ChooseKernels();
  return XXH3_64bits(data, bytes);
}

struct Xxh3::State {
  XXH3_state_t state;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  ChooseKernels();
  Reset();
}

Xxh3::~Xxh3() = default;

void Xxh3::Reset() { MC_CHECK(XXH3_64bits_reset(&state_->state) == XXH_OK); }

void Xxh3::Update(const void* data, size_t bytes) {
  MC_CHECK(XXH3_64bits_update(&state_->state, data, bytes) == XXH_OK);
}

uint64_t Xxh3::Value() const { return XXH3_64bits_digest(&state_->state); }

}  // namespace mooncake
