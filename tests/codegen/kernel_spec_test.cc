#include <nlohmann/json.hpp>

#include "cubinery/gdn.h"
#include "tests/catch.h"

namespace cubinery {
namespace {

const KernelSpec kSpec{.kernel = "rms_norm",
                       .canonical = "rms_norm;dtype=f16;cols=768",
                       .initializer = "{.dtype=cubinery::DType::kF16,.cols=768}",
                       .threads = 128,
                       .shared_bytes = 16,
                       .param_bytes = 32};

TEST_CASE("ASpecificationIsReadAsItWasPrinted", "[cpu]") {
  const KernelSpec read = kernel_spec_from_json(to_json(kSpec)).value();
  CHECK(read.kernel == kSpec.kernel);
  CHECK(read.canonical == kSpec.canonical);
  CHECK(read.initializer == kSpec.initializer);
  CHECK(read.threads == kSpec.threads);
  CHECK(read.shared_bytes == kSpec.shared_bytes);
  CHECK(read.param_bytes == kSpec.param_bytes);
  // Persistent: manifests hold it.
  CHECK(to_json(kSpec) ==
        R"({"kernel":"rms_norm","canonical":"rms_norm;dtype=f16;cols=768",)"
        R"("initializer":"{.dtype=cubinery::DType::kF16,.cols=768}","threads":128,)"
        R"("shared_bytes":16,"param_bytes":32,"digest":"4a88768bde4d45d327bc9abde8efba19"})");
}

TEST_CASE("AChangedSpecificationIsRefused", "[cpu]") {
  const nlohmann::json good = nlohmann::json::parse(to_json(kSpec));
  const auto message = [](const nlohmann::json& json) {
    const Result<KernelSpec> spec = kernel_spec_from_json(json.dump());
    REQUIRE_FALSE(spec);
    CHECK(spec.error().code() == Code::kInvalidKey);
    return std::string(spec.error().message());
  };
  for (const auto& [name, value] : good.items()) {
    nlohmann::json changed = good;
    changed.erase(name);
    CHECK(message(changed).starts_with("spec: no field " + name + "; accepted: what to_json()"));
    changed[name] = value.is_number() ? nlohmann::json(value.get<int>() + 1) : nlohmann::json("x");
    CHECK(message(changed).find("was changed since it was printed") != std::string::npos);
  }
  nlohmann::json more = good;
  more["extra"] = 1;
  CHECK(message(more).find("fields besides its own") != std::string::npos);
  nlohmann::json text = good;
  text["threads"] = "many";
  CHECK(message(text).find("not a number") != std::string::npos);
  CHECK(message("[]").find("not a JSON object") != std::string::npos);
}

}  // namespace
}  // namespace cubinery
