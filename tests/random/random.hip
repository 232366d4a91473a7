/* Random programs (docs/random-programs.md).
 *   random show SEED                      prints the program
 *   random check SEED DROP                says whether it is valid without these steps
 *   random run CODE FIRST COUNT [REPEAT [DROP]]   carries programs out, each REPEAT times
 * DROP is a list of step numbers and ranges, "3,7-9". CODE is module_kernels by --genco. */
#include "generate.h"
#include "run.h"

static Program program_of(gw_u64 seed, const char *drop) {
  Program program = Generator(seed).make();
  std::vector<bool> gone(program.steps.size());
  for (const char *at = drop; *at;) {
    char *end;
    const size_t first = strtoull(at, &end, 10);
    size_t last = first;
    if (*end == '-') last = strtoull(end + 1, &end, 10);
    for (size_t i = first; i <= last && i < gone.size(); i++) gone[i] = true;
    REQUIRE(end != at, "not a list of steps: %s", drop);
    at = *end == ',' ? end + 1 : end;
  }
  std::vector<Step> kept;
  for (size_t i = 0; i < gone.size(); i++) {
    if (!gone[i]) kept.push_back(program.steps[i]);
  }
  program.steps = kept;
  return program;
}

static void show(const Program &program) {
  for (size_t i = 0; i < program.steps.size(); i++) printf("%3zu  %s\n", i, text(program.steps[i]).c_str());
}

static void run(int argc, char **argv) {
  Reused reused(argv[2]);
  const gw_u64 first = strtoull(argv[3], nullptr, 10), count = strtoull(argv[4], nullptr, 10);
  const int repeat = argc > 5 ? atoi(argv[5]) : 1;
  const char *drop = argc > 6 ? argv[6] : "";
  for (gw_u64 seed = first; seed < first + count; seed++) {
    const Program program = program_of(seed, drop);
    REQUIRE(is_valid(program), "the program %llu is not valid", (unsigned long long)seed);
    for (int i = 0; i < repeat; i++) {
      Runner runner(reused, program);
      const gw_u64 digest = runner.run();
      printf("program %llu %016llx%s%s%s\n", (unsigned long long)seed, (unsigned long long)digest,
             runner.results.c_str(), runner.wrong.empty() ? "" : " wrong: ", runner.wrong.c_str());
    }
  }
  printf("ok\n");
}

int main(int argc, char **argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "run" && argc > 4) {
    run(argc, argv);
    return 0;
  }
  REQUIRE((what == "show" || what == "check") && argc > 2, "usage: random show SEED | check SEED DROP | run ...");
  const Program program = program_of(strtoull(argv[2], nullptr, 10), argc > 3 ? argv[3] : "");
  if (what == "show") show(program);
  printf(is_valid(program) ? "valid\n" : "not valid\n");
  return 0;
}
