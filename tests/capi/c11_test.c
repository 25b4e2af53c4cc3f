/* The header is C11, and a C program can use the library. */
#include <stdio.h>
#include <string.h>

#include "cubinery/c_api.h"

static int failures = 0;

static void check(int holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  printf("line %d: %s; last error: %s\n", line, what, cubinery_last_error());
}
#define CHECK(x) check((x), #x, __LINE__)

static void count(int level, const char* message, void* user) {
  (void)level;
  (void)message;
  ++*(int*)user;
}

static void check_operators(const CubineryContext* context) {
  float scale = 1;
  CubineryDecodeArgs decode_args = CUBINERY_DECODE_ARGS_INIT;
  CubineryPrefillArgs prefill_args = CUBINERY_PREFILL_ARGS_INIT;
  CubineryVerifyArgs verify_args = CUBINERY_VERIFY_ARGS_INIT;
  CubineryCommitArgs commit_args = CUBINERY_COMMIT_ARGS_INIT;
  CubineryConvArgs conv_args = CUBINERY_CONV_ARGS_INIT;
  CubineryCommitLayer layers[2] = {CUBINERY_COMMIT_LAYER_INIT, CUBINERY_COMMIT_LAYER_INIT};
  int64_t words[2 * CUBINERY_COMMIT_LAYER_WORDS];
  CubineryDecode* decode = NULL;
  CubineryPrefill* prefill = NULL;
  CubineryVerify* verify = NULL;
  CubineryCommit* commit = NULL;
  CubineryConv* conv = NULL;
  size_t bytes = 1;
  decode_args.scale = &scale;
  prefill_args.scale = &scale;
  verify_args.scale = &scale;
  conv_args.scale = &scale;
  CHECK(decode_args.struct_size == sizeof decode_args && decode_args.enable_pdl == 0);
  CHECK(prefill_args.struct_size == sizeof prefill_args && prefill_args.enable_pdl == 0);
  CHECK(verify_args.struct_size == sizeof verify_args && verify_args.enable_pdl == 0);
  CHECK(commit_args.struct_size == sizeof commit_args && commit_args.enable_pdl == 0);
  CHECK(conv_args.struct_size == sizeof conv_args && conv_args.enable_pdl == 0);
  /* Without a device nothing is loaded. */
  CHECK(cubinery_decode_create(context, "{}", &decode) != CUBINERY_OK && decode == NULL);
  CHECK(cubinery_prefill_create(context, "{}", &prefill) != CUBINERY_OK && prefill == NULL);
  CHECK(cubinery_verify_create(context, "{}", &verify) != CUBINERY_OK && verify == NULL);
  CHECK(cubinery_commit_create(context, "{}", &commit) != CUBINERY_OK && commit == NULL);
  CHECK(cubinery_conv_create(context, "{}", &conv) != CUBINERY_OK && conv == NULL);
  CHECK(cubinery_decode_launch(decode, NULL, &decode_args) == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_prefill_launch(prefill, NULL, &prefill_args, NULL, 0) ==
        CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_verify_launch(verify, NULL, &verify_args) == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_commit_launch(commit, NULL, &commit_args) == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_conv_launch(conv, NULL, &conv_args) == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_commit_table(commit, layers, 2, words) == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_prefill_workspace_bytes(prefill, 1, 1, &bytes) == CUBINERY_INVALID_ARGUMENT);
  cubinery_decode_destroy(decode);
  cubinery_prefill_destroy(prefill);
  cubinery_verify_destroy(verify);
  cubinery_commit_destroy(commit);
  cubinery_conv_destroy(conv);
}

static void check_context(const CubineryContext* context) {
  char* text = NULL;
  CubineryCacheStats stats = CUBINERY_CACHE_STATS_INIT;
  CHECK(strcmp(cubinery_context_arch(context), "sm_90a") == 0);
  CHECK(cubinery_context_device(context) == -1);
  CHECK(cubinery_context_sm_count(context) == 0);
  CHECK(cubinery_context_nvrtc_version(context, &text) == CUBINERY_UNSUPPORTED && text == NULL);
  CHECK(cubinery_context_compile(context, "gdn_decode", "{}", NULL) == CUBINERY_NOT_CACHED);
  CHECK(strcmp(cubinery_last_error_log(), "") == 0);
  CHECK(cubinery_context_stats(context, &stats) == CUBINERY_OK && stats.misses == 1);
  CHECK(cubinery_context_explain(context, "gdn_prefill", "{}", &text) == CUBINERY_OK);
  CHECK(text != NULL && strstr(text, "\"cached\":false") != NULL);
  cubinery_free_text(text);
}

int main(void) {
  int messages = 0;
  char* text = NULL;
  CubineryOptions* options = NULL;
  CubineryContext* context = NULL;
  CHECK(cubinery_c_api_version() == CUBINERY_C_API_VERSION);
  CHECK(strlen(cubinery_version()) > 0);
  CHECK(strstr(cubinery_architectures(), "sm_90a") != NULL);
  CHECK(strstr(cubinery_operators(), "\"op\":\"gdn_prefill\"") != NULL);
  CHECK(strcmp(cubinery_code_name(CUBINERY_IO), "Io") == 0);
  CHECK(cubinery_check_problem("gdn_decode", "{\"v_heads\":64}", &text) == CUBINERY_OK);
  CHECK(text != NULL && strstr(text, "\"v_heads\":64,") != NULL);
  cubinery_free_text(text);
  CHECK(cubinery_form_for_model("conv_decode", "{}", 1, &text) == CUBINERY_INVALID_ARGUMENT);
  CHECK(text == NULL);

  CHECK(cubinery_options_create(&options) == CUBINERY_OK);
  CHECK(cubinery_options_set(options, "device", "-1") == CUBINERY_OK);
  CHECK(cubinery_options_set(options, "arch", "sm_90a") == CUBINERY_OK);
  CHECK(cubinery_options_set(options, "offline", "1") == CUBINERY_OK);
  CHECK(cubinery_options_set(options, "use_disk_cache", "0") == CUBINERY_OK);
  CHECK(cubinery_options_set(options, "nothing", "0") == CUBINERY_INVALID_ARGUMENT);
  CHECK(cubinery_options_set_log(options, count, &messages) == CUBINERY_OK);
  CHECK(cubinery_context_create(options, &context) == CUBINERY_OK);
  cubinery_options_destroy(options);
  check_context(context);
  check_operators(context);
  cubinery_context_destroy(context);
  return failures == 0 ? 0 : 1;
}
