"""The table of programs that build, test or check, with the options that keep them to that. Pure.

How a command is compared with it is in `shell_working`.
"""

TARGET = (
    r"(?!.*(?:fix|write|update|deploy|publish|release|clean|install|format|push|migrate|drop))"
    r"(?:test|tests|check|checks|build|lint|all|compile|typecheck|type-check|types|tsc|typecheck"
    r"|unit|spec|verify|assemble|coverage)(?:[:_-][\w:-]+)?|\d+|(?:V|VERBOSE)=1"
)
"""What people call a task that builds or tests."""

PRODUCT = r"(?:\./)?(?:build|out|bin|obj|target|dist)(?:/[\w./-]+)?|[\w./-]+\.o"
"""Where products go."""

NAME = r"[\w:,-]+"

TABLE = r"""
pytest | -q -x -v -s -l -h --lf --ff --nf --sw --co --collect-only --cov --no-cov --no-header
    --no-summary --disable-warnings --exitfirst --last-failed --failed-first --verbose --quiet
    --full-trace --showlocals --strict-markers --markers --fixtures --setup-show --stepwise
    | -k -m -n~\d+|auto -r --tb --maxfail --durations --timeout --cov --cov-report~term[\w:-]*
    --deselect --ignore --numprocesses --dist --color --capture --log-level --log-cli-level
    --rootdir~\. -p~no:\w+ | *
-m unittest | -v -q -f -b -c | -s -p -t -k | *
mypy | --strict --ignore-missing-imports --show-error-codes --pretty --no-error-summary
    --no-incremental --check-untyped-defs | -p -m --python-version --platform | *
pyright | --stats --warnings --outputjson --verbose | --level --pythonversion | *
basedpyright | --stats --warnings --outputjson --verbose | --level --pythonversion | *
ty check | --quiet -q --verbose -v | --python-version --output-format | *
ruff check | --no-fix -q --quiet --statistics --preview --no-cache --diff --show-files
    | --select --ignore --extend-select --output-format --exclude --line-length --target-version | *
ruff format | !--check !--diff -q --quiet --preview | --line-length --exclude | *
ruff rule | --all | --output-format | 1
black | !--check !--diff -q --quiet -v --color --preview | -l --line-length -t | *
isort | !--check-only !--check !-c !--diff -q --quiet | --profile~\w+ | *
flake8 | --count --statistics --show-source -q -v | --max-line-length --select --ignore
    --extend-ignore --exclude --max-complexity --format | *
pylint | -E --errors-only -rn -sn | --disable --enable -j --score --output-format~{NAME}
    -d -e --reports --max-line-length | *
bandit | -r -q -ll -lll -l -i | -x --exclude -s --skip -t | *
coverage report | -m --show-missing | --include --omit --fail-under | *
-m py_compile | | | *
-m compileall | -q -f | -x | *
-m json.tool | --sort-keys --compact --json-lines --no-ensure-ascii | --indent | 1
-m site | | | 0
-m sysconfig | | | 0
pip list | --not-required -v --local --user -e | --format --exclude | 0
pip show | -f --files -v | | *
pip freeze | --local --user --all | --exclude | 0
pip check | | | 0
pip config | | | list get *
tox | -q -v -p --parallel -l | -e --skip-env | *
nox | -l --list -r | -s -k -e | *
hatch test | -v -q --cover -a | | *
poetry show | --tree -t -l --latest | --with --without --only | *
poetry env | -p --path | | info list
poetry check | | | 0
uv pip | | --format | list show freeze tree check *
uv tree | --frozen --offline --locked | --depth -p --package | 0
uv python | --offline --only-installed | | list find *
conda list | --json | -n | *
npm test | -s --silent --if-present --workspaces -ws | -w --workspace --prefix -C | 0 -- js
npm t | -s --silent | --prefix | 0 -- js
npm run | -s --silent --if-present --workspaces -ws | -w --workspace --prefix -C | @ -- js
npm ls | -g --global --all -a --json --long -l --prod | --depth --omit --prefix -w --workspace | *
npm list | -g --global --all -a --json --long -l --prod | --depth --omit --prefix -w | *
npm explain | --json | --prefix | *
npm config | --json -l | | list ls get *
npm pkg | | | get *
npm root | -g | | 0
npm prefix | -g | | 0
yarn | -s --silent | --cwd | ! @ -- js
yarn run | -s --silent | --cwd | ! @ -- js
yarn list | --json --prod | --depth --pattern | 0
yarn why | | | *
pnpm | -r --recursive -s --silent -w | --filter -F -C --dir | ! @ -- js
pnpm run | -r --recursive -s --silent -w | --filter -F -C --dir | ! @ -- js
hatch run | | | ! @
pnpm ls | -r -g --json --long --prod --dev | --depth --filter | *
pnpm list | -r -g --json --long --prod --dev | --depth --filter | *
pnpm why | -r --json | --filter | *
bun run | --silent | | ! @ -- js
bun test | --bail --coverage | -t --test-name-pattern --timeout | *
deno test | --no-check -q | --filter | *
deno check | -q --all | | *
deno lint | -q --json | | *
-- js | --ci --coverage --silent --verbose --run --bail --no-coverage --runInBand -i -v --colors
    --passWithNoTests --detectOpenHandles --forceExit --no-color
    | -t --testNamePattern --testPathPattern --test-name-pattern --grep -g --reporter~{NAME}
    --maxWorkers -w --testTimeout --timeout --watch~false --watchAll~false --max-warnings~\d+ | *
jest | --ci --coverage --silent --verbose --runInBand -i --no-coverage --bail -b --listTests
    --passWithNoTests --detectOpenHandles --forceExit --onlyFailures -o --colors --no-cache
    | -t --testNamePattern --testPathPattern --maxWorkers -w --testTimeout --watch~false
    --watchAll~false | *
vitest run | --coverage --silent --passWithNoTests --no-color --no-coverage
    | -t --testNamePattern --reporter~{NAME} --bail --project --testTimeout | *
mocha | --bail -b --recursive --exit --parallel | --grep -g -f --timeout -t -R~{NAME} | *
eslint | --quiet --no-color --print-config --report-unused-disable-directives --no-cache
    | --ext --max-warnings~\d+ -f~{NAME} --format~{NAME} | *
prettier | !--check !-c !-l !--list-different --no-color | --log-level | *
tsc | --noEmit --pretty --skipLibCheck --strict --incremental --showConfig --listFiles -b --build
    --noErrorTruncation --traceResolution | -p --project --pretty --target -t --module -m | *
node | !--test | --test-name-pattern --test-reporter~{NAME} --test-concurrency --test-timeout | *
node --check | | | 1
cargo build | {cargo} | {cargo=} | 0
cargo b | {cargo} | {cargo=} | 0
cargo check | {cargo} | {cargo=} | 0
cargo c | {cargo} | {cargo=} | 0
cargo test | {cargo} | {cargo=} | * -- rust
cargo t | {cargo} | {cargo=} | * -- rust
cargo bench | {cargo} | {cargo=} | * -- rust
cargo nextest | {cargo} | {cargo=} -E -P --no-capture | run list *
cargo clippy | {cargo} | {cargo=} | 0 -- lints
cargo doc | {cargo} --document-private-items | {cargo=} | 0
cargo tree | {cargo} -d --duplicates | {cargo=} --depth -i --invert -e --edges --prefix | 0
cargo metadata | {cargo} | {cargo=} --format-version --filter-platform | 0
cargo locate-project | --workspace | --message-format | 0
cargo pkgid | | -p --package | 1
cargo fmt | !--check --all --verbose -v | -p --package | 0
cargo fmt -- | !--check | | 0
cargo fmt --all -- | !--check | | 0
-- rust | --nocapture --no-capture --ignored --include-ignored --exact --list --show-output
    | --test-threads --skip --color --format | *
-- lints | | -D~{NAME} -W~{NAME} -A~{NAME} -F~{NAME} --cap-lints | 0
rustfmt | !--check | --edition --color | *
rustc --print | | | 1
rustup show | | | home active-toolchain
rustup toolchain | -v | | list
go build | {go} | {go=} | *
go vet | {go} | {go=} | *
go test | {go} -short -cover -benchmem -failfast | {go=} -count -run -bench -timeout -parallel
    -cpu -shuffle -skip -vet~off | *
go list | {go} -m -deps -test -e -find -json | {go=} -f | *
go env | -json | | *
go doc | -all -short -src -u -c | | *
go mod | | | graph why verify *
gofmt | !-l !-d -s -e | | *
staticcheck | | -checks -go -tags | *
golangci-lint run | --fast -v --verbose | --timeout -E -D --enable --disable | *
make | -s -k -n -q -p -B -i -w -j --dry-run --just-print --silent --keep-going
    --no-print-directory --always-make | -C --directory -j~\d+ --jobs~\d+ | @
cmake --build | -v --verbose | -j --parallel --config --target~{TARGET} -t~{TARGET} | 1
cmake | | !-B~{PRODUCT} -S -G~.+ -DCMAKE_BUILD_TYPE -DCMAKE_EXPORT_COMPILE_COMMANDS
    -DBUILD_TESTING | 1
ctest | --output-on-failure -V -VV -N --rerun-failed --progress | --test-dir -j --parallel -R -E
    -L -LE -C --timeout | 0
ninja | -v -n | -C -j -k | @
meson test | -v --print-errorlogs | -C -j --suite | *
meson compile | -v | -C -j | @
mvn | {mvn} | {mvn=} | ! test compile test-compile verify package validate
./mvnw | {mvn} | {mvn=} | ! test compile test-compile verify package validate
gradle | {gradle} | {gradle=} | ! @
./gradlew | {gradle} | {gradle=} | ! @
dotnet build | --no-restore --nologo | -c --configuration -v --verbosity | *
dotnet test | --no-build --no-restore --nologo -t --list-tests | -c --configuration --filter -v
    --verbosity --logger~{NAME} | *
bundle list | --name-only | | 0
gem list | -l --local | | *
rspec | --fail-fast --color --no-color -b | -f~{NAME} --format~{NAME} -e -t --tag --seed
    --order | *
rubocop | --parallel --display-only-fail-level-offenses | -f~{NAME} --format~{NAME} --only
    --except | *
rake | -s -q -T | | ! @
ruby -c | | | *
composer show | --installed -i --tree -t --direct -D | | *
composer test | | | 0
composer validate | --strict | | 0
php -l | | | *
php artisan | | --filter | ! test
phpunit | --testdox --stop-on-failure --no-coverage | --filter --testsuite --colors --group | *
python manage.py | --keepdb --failfast --parallel | -v --verbosity --tag -k | ! test check *
mix test | --trace --stale --failed --cover | --only --exclude --include --seed --max-failures | *
mix compile | --warnings-as-errors --force | | 0
mix format | !--check-formatted | | *
swift build | -v | -c --target --product | 0
swift test | -v --parallel --list-tests | --filter --skip -c | 0
flutter test | --coverage | --name --reporter~{NAME} | *
flutter analyze | | | *
dart analyze | --fatal-infos --fatal-warnings | | *
dart test | | -n --name -r~{NAME} | *
zig build | | -Doptimize | @
zig test | | --test-filter | *
just | -n --dry-run -l --list --summary | | ! @
bazel build | -k --keep_going | --jobs --config --test_output | *
bazel test | -k --keep_going | --jobs --config --test_output --test_filter | *
sbt | | | ! test compile
shellcheck | -x -a | -s -e -S -f~{NAME} --severity --shell --exclude | *
yamllint | -s --strict | -f~{NAME} | *
actionlint | -verbose | | *
hadolint | --no-fail | --ignore | *
xmllint | !--noout | | *
tokei | -f --files | -s --sort -t --type -e | *
cloc | --vcs=git | --include-lang --exclude-dir | *
scc | --by-file | -s --sort -i | *
clang-format | --dry-run -n -Werror --Werror --verbose | --style~[A-Za-z]+ -style~[A-Za-z]+ | *
terraform fmt | !-check -diff -recursive | | *
gcc | {cc} | {cc=} | *
g++ | {cc} | {cc=} | *
cc | {cc} | {cc=} | *
clang | {cc} | {cc=} | *
clang++ | {cc} | {cc=} | *
javac | | !-d~{PRODUCT} -cp -classpath -source -target --release | *
"""
"""Each row: the words that name it | options alone | options with a value | operands.

Of options with `!` one is needed. A value is anything, or what stands behind `~`. Operands are `*`
for any, `@` for targets, a number for that many at most, or the words that may follow; with `!` one
is needed. What follows `--` is judged by the row that is named there;
a row of `-m` is a module of Python. Braces are in `SHARED`.
"""

SHARED = {
    "NAME": NAME,
    "PRODUCT": PRODUCT,
    "TARGET": TARGET,
    "cargo": """--release -r --lib --bins --tests --examples --benches --all-targets --workspace
        --all --all-features --no-default-features --no-run --no-fail-fast --offline --locked
        --frozen --verbose -v -q --quiet --no-deps --keep-going --doc""",
    "cargo=": """-p --package --features -F --bin --test --example --bench --exclude -j --jobs
        --profile --target~[\\w-]+ --message-format --color --manifest-path""",
    "go": "-v -race -n -x -a -trimpath",
    "go=": "-tags -p -mod~readonly|vendor",
    "mvn": "-q -o --offline -B -e -X -ntp -am -DskipTests -v",
    "mvn=": "-pl -Dtest -DfailIfNoTests -T",
    "gradle": """--offline --quiet -q --info --stacktrace --no-daemon --continue --parallel
        --rerun-tasks --warning-mode=all""",
    "gradle=": "--tests --console -x",
    "cc": "!-fsyntax-only !-c -g -O -O0 -O1 -O2 -O3 -Os -Wall -Wextra -Wpedantic -Werror",
    "cc=": rf"-std -I -D -o~{PRODUCT} -W~[a-z][a-z0-9-]*",
}
