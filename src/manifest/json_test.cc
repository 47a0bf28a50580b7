// Reading JSON: the contract's messages, and hostile texts.
#include "manifest/json.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/json_document.h"

namespace mooncake::manifest {
namespace {

using nlohmann::json;

std::string Golden(const char* name) {
  std::ifstream file(MOONCAKE_SOURCE_DIR "/tests/golden/reshard_vectors.json");
  return json::parse(file)[name]["json"];
}

std::string ExtendedGolden(const char* name) {
  std::ifstream file(MOONCAKE_SOURCE_DIR "/tests/golden/extended_vectors.json");
  return json::parse(file)[name]["json"];
}

// Reads the golden placement after one change to it.
template <class Change>
Result<PlacementPtr> Read(Change change, const char* name = "mini") {
  json document = json::parse(Golden(name));
  change(document);
  return PlacementFromJson(document.dump());
}

template <class Change>
Result<StoredManifestPtr> ReadStored(Change change) {
  json document = json::parse(Golden("mini_stored"));
  change(document);
  return StoredManifestFromJson(document.dump());
}

TEST(PlacementJson, KeySetsAreExact) {
  const std::string suffix = " schema fields do not match contract";
  EXPECT_THAT(Read([](json& d) { d["extra"] = 1; }), Refused("placement manifest" + suffix));
  EXPECT_THAT(Read([](json& d) { d.erase("revision"); }), Refused("placement manifest" + suffix));
  EXPECT_THAT(Read([](json& d) { d["parts"][1]["extra"] = 1; }),
              Refused("placement part 1" + suffix));
  EXPECT_THAT(Read([](json& d) { d["topology"].erase("tp_size"); }),
              Refused("parallel topology" + suffix));
  EXPECT_THAT(Read([](json& d) { d["topology"]["participants"][1]["extra"] = 1; }),
              Refused("parallel topology participant 1" + suffix));
  EXPECT_THAT(Read([](json& d) { d["topology"]["participants"][1]["rank"]["cp"] = 1; }),
              Refused("parallel topology rank 1" + suffix));
  EXPECT_THAT(Read([](json& d) { d["tensors"][0].erase("layer_id"); }),
              Refused("placement tensor 0" + suffix));
  EXPECT_THAT(Read([](json& d) { d["tensors"][0]["parallel_axes"][0].erase("dim"); }),
              Refused("placement tensor parallel axis 0" + suffix));
  EXPECT_THAT(Read([](json& d) { d["parts"][1]["rank"].erase("dp"); }),
              Refused("placement part rank 1" + suffix));
  EXPECT_THAT(Read([](json& d) { d["parts"][1]["fragments"][0]["rank"].erase("dp"); }),
              Refused("placement rank 0" + suffix));
  EXPECT_THAT(Read([](json& d) { d["parts"][1]["fragments"][0].erase("aliases"); }),
              Refused("placement fragment 0 has an invalid schema"));
  EXPECT_THAT(Read([](json& d) { d["parts"][1]["fragments"][0]["extra"] = 1; }),
              Refused("placement fragment 0 has an invalid schema"));
  EXPECT_THAT(Read([](json& d) {
                d["parts"][1]["fragments"][0].erase("aliases");
                d["parts"][1]["fragments"][0]["pipeline_stage_id"] = 1;
              }),
              Refused("placement fragment 0 has an invalid schema"));
}

TEST(PlacementJson, AxisSemantics) {
  const auto axis = [](auto change) {
    return Read([&change](json& d) { change(d["tensors"][0]["parallel_axes"][0]); });
  };
  EXPECT_THAT(axis([](json& a) { a.erase("semantics"); }),
              Refused("axis semantics must be a non-empty string"));
  EXPECT_THAT(axis([](json& a) { a["semantics"] = 1; }),
              Refused("axis semantics must be a non-empty string"));
  EXPECT_THAT(axis([](json& a) { a["semantics"] = "shared"; }),
              Refused("unsupported parallel axis semantics: shared"));
  EXPECT_THAT(axis([](json& a) { a["semantics"] = "replicated"; }),
              Refused("placement tensor parallel axis 0 schema fields do not match contract"));
  EXPECT_THAT(axis([](json& a) { a["kind"] = "cp"; }),
              Refused("unsupported parallel axis kind: cp"));
  EXPECT_THAT(axis([](json& a) { a["kind"] = 1; }),
              Refused("parallel axis kind must be a non-empty string"));
  EXPECT_THAT(axis([](json& a) { a = 1; }),
              Refused("placement tensor parallel axis 0 must be a JSON object"));
}

TEST(PlacementJson, TypesAreExact) {
  EXPECT_THAT(Read([](json& d) { d["resource_kind"] = "kv_cache"; }),
              Refused("placement manifest resource_kind must be model_weight"));
  EXPECT_THAT(Read([](json& d) { d["resource_id"] = 1; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(Read([](json& d) { d["parts"] = json::object(); }),
              Refused("placement parts must be a sequence"));
  EXPECT_THAT(Read([](json& d) { d["tensors"] = "abc"; }),
              Refused("placement tensors must be a sequence"));
  EXPECT_THAT(Read([](json& d) { d["parts"][0] = 3; }),
              Refused("placement part 0 must be a JSON object"));
  EXPECT_THAT(Read([](json& d) { d["topology"] = json::array(); }),
              Refused("parallel topology must be a JSON object"));
  for (const json& wrong : {json(1.0), json(true), json("1"), json(nullptr), json(-1), json(0)}) {
    SCOPED_TRACE(wrong.dump());
    EXPECT_THAT(Read([&](json& d) { d["tensors"][0]["itemsize"] = wrong; }),
                Refused("placement tensor 0 itemsize must be an integer at least 1"));
    EXPECT_THAT(Read([&](json& d) { d["tensors"][0]["global_shape"][1] = wrong; }),
                Refused("placement tensor 0 global_shape must be an integer at least 1"));
    EXPECT_THAT(Read([&](json& d) { d["parts"][0]["fragments"][0]["nbytes"] = wrong; }),
                Refused("placement fragment 0 nbytes must be an integer at least 1"));
  }
  EXPECT_THAT(Read([](json& d) {
                d["parts"][0]["fragments"][0]["aliases"] = {"w", 1};
              }),
              Refused("placement fragment 0 aliases must be a non-empty string"));
  EXPECT_THAT(Read([](json& d) { d["tensors"][0]["layer_id"] = 1.5; }),
              Refused("placement tensor 0 layer_id must be an integer at least 0"));
  EXPECT_THAT(Read([](json& d) { d["parts"][0]["fragments"][0]["pipeline_stage_id"] = true; }),
              Refused("placement fragment 0 pipeline_stage_id must be an integer at least 0"));
}

TEST(PlacementJson, IntegersBeyond64BitsAreRefused) {
  const auto read = [](const std::string& field, const std::string& integer) {
    std::string text = Golden("mini");
    const size_t at = text.find(field);
    const size_t end = text.find_first_of(",}", at + field.size());
    text.replace(at + field.size(), end - at - field.size(), integer);
    return PlacementFromJson(text);
  };
  const std::string digits(100'000, '9');
  EXPECT_THAT(read("\"itemsize\":", "9223372036854775808"),
              Refused("placement tensor 0 itemsize must fit in a signed 64-bit integer"));
  EXPECT_THAT(read("\"itemsize\":", digits), Refused("must fit in a signed 64-bit integer"));
  EXPECT_THAT(read("\"nbytes\":", "18446744073709551615"), Refused("fragment byte size mismatch"));
  EXPECT_THAT(read("\"nbytes\":", "18446744073709551616"),
              Refused("placement fragment 0 nbytes must fit in an unsigned 64-bit integer"));
  EXPECT_THAT(read("\"nbytes\":", "-" + digits), Refused("placement fragment 0 nbytes must"));
  EXPECT_THAT(read("\"weight_generation\":", digits),
              Refused("weight_generation must fit in an unsigned 64-bit integer"));
  // Largest values that fit, refused only for what they say.
  EXPECT_THAT(read("\"itemsize\":", "9223372036854775807"), Refused("fragment byte size mismatch"));
}

TEST(PlacementJson, ContentChecks) {
  EXPECT_THAT(Read([](json& d) { d["tensors"].push_back(d["tensors"][0]); }),
              Refused("duplicate tensor_id in placement JSON: w"));
  EXPECT_THAT(Read([](json& d) { d["parts"][0]["fragments"][0]["tensor_id"] = "x"; }),
              Refused("unknown tensor_id in placement part: x"));
  EXPECT_THAT(Read([](json& d) {
                d["tensors"].push_back(d["tensors"][0]);
                d["tensors"][1]["tensor_id"] = "x";
              }),
              Refused("placement JSON contains an unreferenced tensor: x"));
  EXPECT_THAT(Read([](json& d) { d["revision"] = "s"; }),
              Refused("placement_id does not match canonical logical content"));
  EXPECT_THAT(Read([](json& d) { d["topology"]["topology_id"] = "sha256:0"; }),
              Refused("topology_id does not match canonical topology"));
  EXPECT_THAT(Read([](json& d) { d["parts"].erase(1); }),
              Refused("missing topology participant: w1"));
}

TEST(PlacementJson, FormIsFree) {
  const PlacementPtr expected = PlacementFromJson(Golden("target")).value();
  json document = json::parse(Golden("target"));
  std::reverse(document["parts"].begin(), document["parts"].end());
  std::reverse(document["tensors"].begin(), document["tensors"].end());
  std::reverse(document["topology"]["participants"].begin(),
               document["topology"]["participants"].end());
  for (json& part : document["parts"]) {
    std::reverse(part["fragments"].begin(), part["fragments"].end());
    for (json& fragment : part["fragments"]) {
      if (!fragment.contains("pipeline_stage_id")) fragment["pipeline_stage_id"] = nullptr;
    }
  }
  std::string text = " \t\r\n" + document.dump(3) + "\n";
  text.replace(text.find("\"tensors\""), 9, "\"t\\u0065nsors\"");
  EXPECT_EQ(*PlacementFromJson(text).value(), *expected);
}

TEST(StoredJson, Checks) {
  const std::string suffix = " schema fields do not match contract";
  EXPECT_THAT(ReadStored([](json& d) { d["extra"] = 1; }), Refused("weight manifest" + suffix));
  EXPECT_THAT(ReadStored([](json& d) { d["tensors"][0]["extra"] = 1; }),
              Refused("tensor descriptor" + suffix));
  EXPECT_THAT(ReadStored([](json& d) { d["fragments"][0].erase("aliases"); }),
              Refused("stored fragment" + suffix));
  EXPECT_THAT(ReadStored([](json& d) { d["resource_kind"] = "kv_cache"; }),
              Refused("weight manifest resource_kind must be model_weight"));
  EXPECT_THAT(ReadStored([](json& d) { d["fragments"] = 1; }),
              Refused("fragments must be a sequence"));
  EXPECT_THAT(ReadStored([](json& d) { d["created_at"] = ""; }),
              Refused("created_at must be a non-empty string"));
  EXPECT_THAT(ReadStored([](json& d) { d["fragments"][0]["object_offset"] = 0.0; }),
              Refused("stored fragment object_offset must be an integer at least 0"));
  EXPECT_THAT(ReadStored([](json& d) { d["fragments"][0]["nbytes"] = 17; }),
              Refused("fragment byte size mismatch: f0: expected 16, got 17"));
  EXPECT_THAT(StoredManifestFromJson("{"), Refused("weight manifest is not valid JSON"));
  EXPECT_THAT(StoredManifestFromJson("[]"), Refused("weight manifest must be a JSON object"));
}

// --- hostile texts ------------------------------------------------------------------------------

TEST(HostileJson, SyntaxIsStrict) {
  const std::string bad[] = {"",
                             " ",
                             "nul",
                             "{",
                             "}",
                             "[",
                             "[1",
                             "[1,",
                             "[1,]",
                             "[,]",
                             "{\"a\"}",
                             "{\"a\":}",
                             "{\"a\":1,}",
                             "{a:1}",
                             "{'a':1}",
                             "{1:1}",
                             "\"",
                             "\"a",
                             "\"\\",
                             "\"\\x\"",
                             "\"\\u12\"",
                             "\"\\u12g4\"",
                             "\"\\u+123\"",
                             "\"\t\"",
                             std::string("\"\0\"", 3),
                             "01",
                             "1.",
                             ".5",
                             "+1",
                             "-",
                             "--1",
                             "1e",
                             "1e+",
                             "0x10",
                             "1 2",
                             "[] []",
                             "{} x",
                             "// c\n{}",
                             "\xef\xbb\xbf{}",
                             "\"\xff\"",
                             "\"\xc0\x80\"",
                             "\"\xed\xa0\x80\"",
                             "\"\xf4\x90\x80\x80\"",
                             "\"\xe2\x82\"",
                             "\"\\ud800\"",
                             "\"\\udc00\"",
                             "\"\\ud800\\u0041\"",
                             "\"\\ud800x\"",
                             "truefalse",
                             "nan",
                             "infinity",
                             "-inf",
                             "True",
                             std::string("{}\0", 3)};
  for (const std::string& text : bad) {
    SCOPED_TRACE(text);
    EXPECT_THAT(PlacementFromJson(text), Refused("placement manifest is not valid JSON"));
  }
  for (const char* text : {"null", "true", "1", "-0", "1.5e-3", "\"x\"", "[]", " [ ] "}) {
    SCOPED_TRACE(text);
    EXPECT_THAT(PlacementFromJson(text), Refused("placement manifest must be a JSON object"));
  }
}

TEST(HostileJson, NonFiniteNumbers) {
  for (const char* constant : {"NaN", "Infinity", "-Infinity"}) {
    EXPECT_THAT(PlacementFromJson(std::string("{\"a\":") + constant + "}"),
                Refused(std::string("non-finite JSON number is unsupported: ") + constant));
  }
}

TEST(HostileJson, DuplicateKeys) {
  EXPECT_THAT(PlacementFromJson("{\"a\":1,\"b\":2,\"a\":1}"), Refused("duplicate JSON field: a"));
  EXPECT_THAT(PlacementFromJson("{\"x\":[{\"key\":1,\"k\\u0065y\":2}]}"),
              Refused("duplicate JSON field: key"));
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_THAT(PlacementFromJson(many + "\"k7\":0}"), Refused("duplicate JSON field: k7"));
  EXPECT_THAT(PlacementFromJson(many + "\"z\":0}"), Refused("schema fields do not match contract"));
}

TEST(HostileJson, DepthIsBounded) {
  for (const int depth : {65, 1000, 100'000, 5'000'000}) {
    EXPECT_THAT(PlacementFromJson(std::string(depth, '[')),
                Refused("nesting deeper than 64 levels"));
    std::string objects;
    for (int i = 0; i < depth; ++i) objects += "{\"a\":";
    EXPECT_THAT(PlacementFromJson(objects), Refused("nesting deeper than 64 levels"));
    EXPECT_THAT(StoredManifestFromJson(std::string(depth, '[') + std::string(depth, ']')),
                Refused("nesting deeper than 64 levels"));
  }
  EXPECT_THAT(PlacementFromJson(std::string(64, '[') + std::string(64, ']')),
              Refused("must be a JSON object"));
}

TEST(HostileJson, EveryTruncationIsRefused) {
  for (const char* name : {"mini", "target"}) {
    const std::string text = Golden(name);
    for (size_t bytes = 0; bytes < text.size(); ++bytes) {
      ASSERT_THAT(PlacementFromJson(std::string(text, 0, bytes)),
                  Refused("placement manifest is not valid JSON"));
    }
  }
  const std::string stored = Golden("mini_stored");
  for (size_t bytes = 0; bytes < stored.size(); ++bytes) {
    ASSERT_THAT(StoredManifestFromJson(std::string(stored, 0, bytes)),
                Refused("weight manifest is not valid JSON"));
  }
}

// The other reader also refuses numbers beyond a double, which the grammar allows: 571e3760.
bool StopsAtItsRange(const std::string& text) {
  try {
    return json::parse(text).is_discarded();
  } catch (const json::out_of_range&) {
    return true;
  } catch (const json::parse_error&) {
    return false;
  }
}

// Documents that differ in a few bytes: refused, or read back to themselves.
TEST(HostileJson, RandomMutations) {
  const char* given = std::getenv("MOONCAKE_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                     : std::random_device()();
  std::cout << "MOONCAKE_TEST_SEED=" << seed << '\n';
  std::mt19937 random(seed);
  const std::string alphabet = "{}[]\",:\\0123456789-+.eEtrufalsn \n\x01\x7f\x80\xff";
  for (const std::string& golden :
       {Golden("mini"), Golden("source"), Golden("mini_stored"), ExtendedGolden("owned"),
        ExtendedGolden("everything"), ExtendedGolden("tied")}) {
    for (int round = 0; round < 4000; ++round) {
      std::string text = golden;
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        const size_t at = random() % text.size();
        const char c = alphabet[random() % alphabet.size()];
        switch (random() % 4) {
          case 0:
            text[at] = c;
            break;
          case 1:
            text.erase(at, 1 + random() % 8);
            break;
          case 2:
            text.insert(at, 1, c);
            break;
          default:
            text.insert(at, text.substr(random() % text.size(), random() % 64));
            break;
        }
        if (text.empty()) text = "{";
      }
      const auto placement = PlacementFromJson(text);
      const auto stored = StoredManifestFromJson(text);
      if (placement.ok()) {
        ASSERT_EQ(*PlacementFromJson(PlacementToJson(**placement)).value(), **placement) << text;
      } else {
        ASSERT_EQ(placement.status().code(), Code::kInvalidArgument) << text;
      }
      if (stored.ok()) {
        ASSERT_EQ(*StoredManifestFromJson(StoredManifestToJson(**stored)).value(), **stored)
            << text;
      } else {
        ASSERT_EQ(stored.status().code(), Code::kInvalidArgument) << text;
      }
      // The syntax itself, judged by another reader.
      const Result<JsonDocument> document = JsonDocument::Parse("text", text);
      if (document.ok()) {
        ASSERT_TRUE(json::accept(text) || StopsAtItsRange(text)) << text;
      } else if (document.status().message().find("is not valid JSON") != std::string::npos) {
        ASSERT_FALSE(json::accept(text)) << text << "\n" << document.status().ToString();
      }
    }
  }
}

json ToNlohmann(JsonValue value) {
  switch (value.kind()) {
    case JsonKind::kNull:
      return nullptr;
    case JsonKind::kBool:
      return value.unsigned_integer() != 0;
    case JsonKind::kInteger:
      return value.integer();
    case JsonKind::kUnsigned:
      return value.unsigned_integer();
    case JsonKind::kBigInteger:
      return "big";
    case JsonKind::kFloat:
      return "float";
    case JsonKind::kText:
    case JsonKind::kEscapedText:
      return std::string(value.text());
    case JsonKind::kArray: {
      json array = json::array();
      JsonValue element = value.first();
      for (size_t i = 0; i < value.count(); ++i, element = element.next()) {
        array.push_back(ToNlohmann(element));
      }
      return array;
    }
    case JsonKind::kObject: {
      json object = json::object();
      JsonValue key = value.first();
      for (size_t i = 0; i < value.count(); ++i) {
        object[std::string(key.text())] = ToNlohmann(key.next());
        key = key.next().next();
      }
      return object;
    }
  }
  return nullptr;
}

std::string RandomText() {
  const std::vector<std::string> pieces = {"a",    "/",    "\"", "\\",     "\n", "\b",
                                           "\x01", "\x7f", "é",  "\u2028", "😀"};
  std::string text;
  for (int n = *rc::gen::inRange(0, 6); n > 0; --n) text += *rc::gen::elementOf(pieces);
  return text;
}

json RandomJson(int depth) {
  switch (*rc::gen::inRange(0, depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return *rc::gen::arbitrary<bool>();
    case 2:
      return *rc::gen::arbitrary<int64_t>();
    case 3:
      return *rc::gen::arbitrary<uint64_t>();
    case 4:
      return RandomText();
    case 5: {
      json array = json::array();
      for (int n = *rc::gen::inRange(0, 4); n > 0; --n) array.push_back(RandomJson(depth - 1));
      return array;
    }
    default: {
      json object = json::object();
      for (int n = *rc::gen::inRange(0, 4); n > 0; --n)
        object[RandomText()] = RandomJson(depth - 1);
      return object;
    }
  }
}

TEST(JsonDocument, ReadsWhatAnotherWriterWrote) {
  EXPECT_TRUE(rc::check([] {
    const json document = RandomJson(5);
    const bool ascii = *rc::gen::arbitrary<bool>();
    const std::string text = document.dump(*rc::gen::inRange(-1, 3), ' ', ascii);
    const JsonDocument parsed = JsonDocument::Parse("text", text).value();
    RC_ASSERT(ToNlohmann(parsed.root()) == document);
  }));
}

TEST(JsonDocument, NumberKinds) {
  const auto kind = [](std::string_view text) {
    return JsonDocument::Parse("text", text).value().root().kind();
  };
  EXPECT_EQ(kind("-0"), JsonKind::kInteger);
  EXPECT_EQ(kind("9223372036854775807"), JsonKind::kInteger);
  EXPECT_EQ(kind("-9223372036854775808"), JsonKind::kInteger);
  EXPECT_EQ(kind("9223372036854775808"), JsonKind::kUnsigned);
  EXPECT_EQ(kind("18446744073709551616"), JsonKind::kBigInteger);
  EXPECT_EQ(kind("-9223372036854775809"), JsonKind::kBigInteger);
  EXPECT_EQ(kind("1.0"), JsonKind::kFloat);
  EXPECT_EQ(kind("1E400"), JsonKind::kFloat);
  EXPECT_EQ(kind("0e0"), JsonKind::kFloat);
}

}  // namespace
}  // namespace mooncake::manifest
