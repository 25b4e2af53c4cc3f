// DLTensors as the library takes them.
#include "capi/dl_tensor.h"

#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include "tests/capi/dl_views.h"
#include "tests/catch.h"

namespace cubinery::dl_tensor_test {
namespace {

constexpr int kDevice = 2;

// A good tensor on kDevice, and what becomes of it.
struct Bench {
  Bench() {
    given = *views.of(Tensor::contiguous(&data, DType::kF32, {2, 3, 4}));
    given.device.device_id = kDevice;
  }
  Status read() { return capi::from_dlpack({"op", "x"}, &given, kDevice, &tensor); }
  std::string refusal() {
    const Status status = read();
    CHECK(status.code() == Code::kInvalidArgument);
    return std::string(status.message());
  }

  float data = 0;
  test::DlViews views;
  DLTensor given{};
  Tensor tensor{};
};

TEST_CASE("ADlTensorIsTakenAsItLies", "[cpu]") {
  Bench bench;
  std::int64_t strides[] = {100, 0, -7};
  bench.given.strides = strides;
  REQUIRE(bench.read().ok());
  const Tensor& x = bench.tensor;
  CHECK((x.data == &bench.data && x.dtype == DType::kF32 && x.rank == 3));
  CHECK((x.shape[0] == 2 && x.shape[1] == 3 && x.shape[2] == 4));
  CHECK((x.strides[0] == 100 && x.strides[1] == 0 && x.strides[2] == -7));
}

TEST_CASE("WithoutStridesADlTensorIsRowMajor", "[cpu]") {
  Bench bench;
  bench.given.strides = nullptr;
  REQUIRE(bench.read().ok());
  CHECK((bench.tensor.strides[0] == 12 && bench.tensor.strides[1] == 4));
  CHECK(bench.tensor.strides[2] == 1);

  // The first extent is in no stride, the others are.
  std::int64_t huge[] = {std::numeric_limits<std::int64_t>::max(), 1LL << 31, 1LL << 31};
  bench.given.shape = huge;
  REQUIRE(bench.read().ok());
  CHECK(bench.tensor.strides[0] == 1LL << 62);
  huge[1] = 1LL << 32;
  CHECK(bench.refusal() ==
        "op: x has a shape of more than 2^63 elements; accepted: what memory holds");
}

TEST_CASE("TheByteOffsetIsAdded", "[cpu]") {
  Bench bench;
  bench.given.byte_offset = 4096;
  REQUIRE(bench.read().ok());
  CHECK(static_cast<char*>(bench.tensor.data) - reinterpret_cast<char*>(&bench.data) == 4096);
  bench.given.data = nullptr;
  REQUIRE(bench.read().ok());
  CHECK(bench.tensor.data == nullptr);
  CHECK(bench.tensor.present());
}

TEST_CASE("AByteOffsetBeyondTheAddressSpaceIsRefused", "[cpu]") {
  Bench bench;
  const std::uint64_t room = UINT64_MAX - reinterpret_cast<std::uintptr_t>(&bench.data);
  bench.given.byte_offset = room;
  CHECK(bench.read().ok());
  CHECK(reinterpret_cast<std::uintptr_t>(bench.tensor.data) == UINT64_MAX);
  for (const std::uint64_t offset : {room + 1, UINT64_MAX}) {
    bench.given.byte_offset = offset;
    CHECK(bench.refusal() ==
          "op: x has byte_offset " + std::to_string(offset) + "; accepted: what memory holds");
  }
}

TEST_CASE("NullIsAnAbsentTensor", "[cpu]") {
  float data = 0;
  Tensor tensor = Tensor::contiguous(&data, DType::kF32, {1});
  REQUIRE(capi::from_dlpack({"op", "x"}, nullptr, 0, &tensor).ok());
  CHECK_FALSE(tensor.present());
}

TEST_CASE("EveryDtypeIsTaken", "[cpu]") {
  Bench bench;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64,
                            DType::kF8E4M3, DType::kF8E5M2, DType::kBool}) {
    bench.given.dtype = test::dl_dtype(dtype);
    REQUIRE(bench.read().ok());
    CHECK(bench.tensor.dtype == dtype);
  }
}

TEST_CASE("OtherDtypesAreRefused", "[cpu]") {
  Bench bench;
  const auto message = [&](DLDataType dtype) {
    bench.given.dtype = dtype;
    return bench.refusal();
  };
  const std::string accepted = "; accepted: f32, bf16, f16, i32, i64, f8e4m3, f8e5m2, bool";
  CHECK(message({kDLFloat, 64, 1}) == "op: x has dtype f64" + accepted);
  CHECK(message({kDLUInt, 8, 1}) == "op: x has dtype u8" + accepted);
  CHECK(message({6, 1, 1}) == "op: x has dtype of DLPack's type code 6 with bits 1" + accepted);
  CHECK(message({kDLInt, 16, 1}) == "op: x has dtype i16" + accepted);
  CHECK(message({kDLBfloat, 32, 1}) == "op: x has dtype bf32" + accepted);
  CHECK(message({8, 8, 1}) == "op: x has dtype of DLPack's type code 8 with bits 8" + accepted);
  CHECK(message({kDLFloat, 32, 4}) == "op: x has dtype f32x4" + accepted);
  CHECK(message({kDLComplex, 64, 1}) ==
        "op: x has dtype of DLPack's type code 5 with bits 64" + accepted);
}

TEST_CASE("MemoryOfAnotherDeviceIsRefused", "[cpu]") {
  Bench bench;
  const auto message = [&](int type, int id) {
    std::memcpy(&bench.given.device.device_type, &type, sizeof type);
    bench.given.device.device_id = id;
    return bench.refusal();
  };
  CHECK(message(kDLCPU, 0) == "op: x is on device cpu; accepted: cuda:2");
  CHECK(message(kDLCUDA, 1) == "op: x is on device cuda:1; accepted: cuda:2");
  CHECK(message(kDLCUDAHost, 2) == "op: x is on device cuda_host; accepted: cuda:2");
  CHECK(message(kDLROCM, 2) == "op: x is on device rocm:2; accepted: cuda:2");
  CHECK(message(17, 2) == "op: x is on device 2 of DLPack's device type 17; accepted: cuda:2");
}

TEST_CASE("ManagedMemoryIsOnEveryDevice", "[cpu]") {
  Bench bench;
  bench.given.device = {kDLCUDAManaged, 0};
  CHECK(bench.read().ok());
}

TEST_CASE("ImpossibleShapesAreRefused", "[cpu]") {
  Bench bench;
  for (const int ndim : {-1, 0, 6}) {
    bench.given.ndim = ndim;
    CHECK(bench.refusal() == "op: x has " + std::to_string(ndim) + " dimensions; accepted: 1 to 5");
  }
  bench.given.ndim = 1;
  bench.given.shape = nullptr;
  CHECK(bench.refusal() == "op: x has shape NULL; accepted: its extents");
}

}  // namespace
}  // namespace cubinery::dl_tensor_test
