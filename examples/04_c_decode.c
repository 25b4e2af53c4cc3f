/* One decode step of Qwen3-Next's linear attention from C11, checked against loops in double. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cubinery/c_api.h"

enum { kBatch = 8, kKeyHeads = 16, kHeads = 32, kDim = 128 };

/* A float tensor on the device, and its copy on the host. */
typedef struct Values {
  float* host;
  size_t bytes;
  int64_t shape[4];
  DLTensor device;
} Values;

static void fill(Values* x, float low, float high, int rank, const int64_t* shape) {
  size_t count = 1;
  for (int d = 0; d < rank; ++d) count *= (size_t)(x->shape[d] = shape[d]);
  x->bytes = count * sizeof(float);
  x->host = malloc(x->bytes);
  for (size_t i = 0; i < count; ++i) {
    x->host[i] = low + (high - low) * (float)rand() / (float)RAND_MAX;
  }
  x->device = (DLTensor){.device = {kDLCUDA, 0}, .ndim = rank, .dtype = {kDLFloat, 32, 1}};
  x->device.shape = x->shape;
  cudaMalloc(&x->device.data, x->bytes);
  cudaMemcpy(x->device.data, x->host, x->bytes, cudaMemcpyHostToDevice);
}

static void check(int code) {
  if (code == CUBINERY_OK) return;
  fprintf(stderr, "%s: %s\n", cubinery_code_name(code), cubinery_last_error());
  exit(1);
}

static double norm(const float* x) {
  double sum = 1e-6;
  for (int i = 0; i < kDim; ++i) sum += (double)x[i] * x[i];
  return sqrt(sum);
}

/* One row of the state, `s`, of value v: steps it and returns the row's output. */
static double step(const float* q, const float* k, double v, double g, double beta, double* s) {
  const double k_norm = norm(k), q_norm = norm(q) * sqrt(kDim);
  double found = 0, o = 0;
  for (int i = 0; i < kDim; ++i) found += exp(g) * s[i] * k[i] / k_norm;
  for (int i = 0; i < kDim; ++i) {
    s[i] = exp(g) * s[i] + beta * (v - found) * k[i] / k_norm;
    o += s[i] * q[i] / q_norm;
  }
  return o;
}

int main(void) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return puts("no GPU"), 77;

  Values q, k, v, g, beta, state, o;
  fill(&q, -1, 1, 3, (int64_t[4]){kBatch, kKeyHeads, kDim});
  fill(&k, -1, 1, 3, (int64_t[4]){kBatch, kKeyHeads, kDim});
  fill(&v, -1, 1, 3, (int64_t[4]){kBatch, kHeads, kDim});
  fill(&g, -0.2f, 0, 2, (int64_t[4]){kBatch, kHeads});
  fill(&beta, 0, 1, 2, (int64_t[4]){kBatch, kHeads});
  /* A matrix's rows are those of values, the layout vk. */
  fill(&state, -0.1f, 0.1f, 4, (int64_t[4]){kBatch, kHeads, kDim, kDim});
  fill(&o, 0, 0, 3, (int64_t[4]){kBatch, kHeads, kDim});

  CubineryContext* context = NULL;
  CubineryDecode* decode = NULL;
  check(cubinery_context_create(NULL, &context));
  check(cubinery_decode_create(
      context, "{\"dtype\":\"f32\",\"output_dtype\":\"f32\",\"use_qk_l2norm\":true}", &decode));
  CubineryDecodeArgs args = CUBINERY_DECODE_ARGS_INIT;
  args.q = &q.device;
  args.k = &k.device;
  args.v = &v.device;
  args.g = &g.device;
  args.beta = &beta.device;
  args.o = &o.device;
  args.state = &state.device;
  check(cubinery_decode_launch(decode, NULL, &args));
  float* const before = state.host;
  float* const after = malloc(state.bytes);
  cudaMemcpy(o.host, o.device.data, o.bytes, cudaMemcpyDeviceToHost);
  cudaMemcpy(after, state.device.data, state.bytes, cudaMemcpyDeviceToHost);

  double worst = 0;
  for (int h = 0; h < kBatch * kHeads; ++h) { /* a request and head */
    const int key = h / (kHeads / kKeyHeads);
    for (int r = h * kDim; r < (h + 1) * kDim; ++r) { /* a row of its state */
      double s[kDim];
      for (int i = 0; i < kDim; ++i) s[i] = before[r * kDim + i];
      const double expected =
          step(q.host + key * kDim, k.host + key * kDim, v.host[r], g.host[h], beta.host[h], s);
      double error = fabs(o.host[r] - expected);
      for (int i = 0; i < kDim; ++i) error += fabs(after[r * kDim + i] - s[i]) / kDim;
      if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
  }
  printf("%s: largest error of o and the state: %.2e\n", cubinery_context_arch(context), worst);
  cubinery_decode_destroy(decode);
  cubinery_context_destroy(context);
  return worst < 1e-5 ? 0 : 1;
}
