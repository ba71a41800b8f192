"""Ways to make what builds, lists or is filled in do more than that; all of them must ask."""

_LISTS = r"""
git ls-files | xargs rm
find . -name '*.py' | xargs rm -f
find . -type f | xargs cat
find . -name '.e*' | xargs cat
find . -name '*.py' -o -type f | xargs head
find . ! -name '*.py' | xargs cat
ls | xargs cat
ls -a .. | xargs cat
rg -l '' | xargs cat
git ls-files --others | xargs cat
git ls-files --format=/etc/passwd | xargs cat
git diff --name-only --no-index /etc . | xargs cat
find . -printf '/etc/passwd\n' | xargs cat
find . -exec echo /etc/passwd \; | xargs cat
echo /etc/passwd | xargs cat
cat paths | xargs cat
head -1 paths | xargs cat
git ls-files | sed s,^,/etc/, | xargs cat
git ls-files | tr a / | xargs cat
git ls-files | xargs -I{} cat /etc/{}
git ls-files | xargs -I{} cat {}/../../x
git ls-files | xargs -I@ cat @
git ls-files | (xargs rm)
(echo /etc; git ls-files) | xargs cat
{ echo /etc; git ls-files; } | xargs cat
git ls-files | cat - paths | xargs cat
git ls-files | sort paths | xargs cat
git ls-files | grep x paths | xargs cat
git ls-files | xargs sort
git ls-files | xargs sed -n p
for f in $(cat paths); do cat $f; done
for f in $(git ls-files; cat paths); do cat $f; done
for f in $(git ls-files) $(cat paths); do cat $f; done
for f in /etc/passwd a; do cat $f; done
for f in ../a; do cat "$f"; done
for f in .env a; do cat $f; done
for f in a b; do rm $f; done
cat {.env,a}
cat {../a,b}
cat {/etc,x}/passwd
cat *.p?m
cat .en[v]
head -3 id_*
wc -l $(cat paths)
cat $(ls -a ..)
cat <(cat /etc/passwd)
"""

_VALUES = r"""
x=-o; sort $x f f
x=/etc/passwd; cat $x
x=.env; cat "$x"
d=..; cat $d/x
false && x=-n; sed $x p 'w out'
true || x=p; sed $x 'w out'
x=p | true; sed $x 'w out'
x=p & sed $x 'w out'
x=p && true & sed $x 'w out'
(x=p); sed $x 'w out'
if true; then x=p; fi; sed $x 'w out'
while x=p; do sed $x 'w out'; done
for x in p; do :; done; sed $x 'w out'
sed $x 'w out'; x=p
x=p; read x < f; sed $x 'w out'
x=p; read -r x < f; sed "$x" f
x=p; command read x < f; sed $x 'w out'
x=p; builtin printf -v x 'w out'; sed "$x" f
x=p; printf -vx 'w out'; sed "$x" f
x=p; time read x < f; sed "$x" f
x=p; unset x; sed $x 'w out'
x=p; x=q; sed $x f
x=p; x+='w out'; sed "$x" f
x=p; for x in 'w out'; do :; done; sed "$x" f
x=p; : ${x:=q}; sed $x f
x=p; printf -v x 'w out'; sed "$x" f
x=p; mapfile x < f; sed "$x" f
x=p; let x=1; sed "$x" f
x=p; getopts a x; sed "$x" f
x=p; export x=q; sed "$x" f
x=p; declare x='w out'; sed "$x" f
x=p; f() { x='w out'; }; f; sed "$x" f
x=p; eval x=q; sed "$x" f
x='w out'; sed "$x" f
x="p;w out"; sed "$x" f
x=$(cat f); sed "$x" f
*x=aa
1x=aa
x=bb;*x=aa && &>/dev/null
x=1; echo $((x))
x='a[$(rm y)]'; echo $((x + 1))
a=rm; b=x; $a $b
x=rm; time $x y
x=rm; env $x y
x=rm; xargs $x < f
x='rm y'; sh -c "$x"
x=rm; find . -exec $x {} \;
PATH+=:/tmp; ls
PATH=/tmp x=1; ls
LD_PRELOAD=./x.so; ls
npm_config_script_shell=./evil; npm test
http_proxy=evil; npm test
GIT_PAGER='cat; rm x' git log
GIT_PAGER=cat\ x git log
PAGER=./evil git log
PAGER=cat GIT_EXTERNAL_DIFF=./evil git diff
CI+=x rm y
x=1 rm y
rm >&2 -rf x
echo >&2 "$(rm x)"
echo >&2"x" y
echo >out x
echo > /dev/null/x y
echo ${x:-$(rm y)}
echo ${x:-`rm y`}
echo ${x//a/$(rm y)}
echo ${x:$(rm y)}
echo ${x:a[$(rm y)]}
echo ${!x}
echo ${x@P}
echo $((a[$(rm y)]))
echo {1..$(rm y)}
[ -v "a[$(rm y)]" ]
[ "$(rm x)" = a ]
[[ "$x" -gt 0 ]]
[ $x -gt 0 ]
test $x "$y"
test "$x" "$y"
test "$x" "$y" "$z"
test -v "$x"
"""

_READS = r"""
awk '{print > "out"}' f
awk '{print 1 >> "out"}' f
awk '{if (1) print 1 > "out"}' f
awk '{print (1) > "out"}' f
awk '/x/ {print 1/2 > "out"} /y/' f
awk '{print "a\"" > "out"}' f
awk '{print 1 # )(\n > "out"}' f
awk '{print | "sh"}' f
awk '{print || "a" | "sh"}' f
awk '{print "a" |& "sh"}' f
sed 's%a%b%w out' f
sed 's:a:b:e' f
sed 's@a@rm x@e' f
bash -n +n -c 'rm x'
bash -n -c 'rm x' x
bash --version -c 'rm x'
sh -n x y
xxd a b
xxd -r a b
unzip a.zip
unzip -l a.zip -d x
unzip -p -o a.zip
ldconfig
base64 -o out f
yq -i .a f
yq '.a = 1' f
yq 'load("/etc/passwd")' f
tput init
ulimit -c 0
umask 0
jobs -x rm y
tar tf host:a
nm --plugin ./x.so a
objdump -P ./x a
find . -name -delete -delete
find . -name x -delete
find . -size +1 -fprint out
git branch --sort=x new
git branch --format=x new
git branch -l new
git tag --sort=x new
git tag --contains -d x
git config --bool a.b true
git config --get-regexp a --file evil
git config --global core.pager evil
git stash show --output=x
git stash show -p --ext-diff
git reflog show --output=x
git reflog delete x
git symbolic-ref HEAD refs/heads/x
git symbolic-ref -d HEAD
git notes show --output=x
git notes list; git notes prune
git bisect log; git bisect reset
git hash-object -w f
git hash-object f
git worktree list; git worktree prune
"""

_WORKS = r"""
pytest; rm -rf x
pytest && git push
pytest | sh
pytest $(rm x)
pytest > src/app.py
pytest -p evil
pytest -pevil
pytest -pno:x -p evil
pytest --cov-report=html:src
pytest --basetemp=.
pytest @args
pytest -o addopts=-x
pytest --pdb
pytest $X
pytest *
pytest -k x /etc
pytest --ignore=../x ..
sudo pytest
nohup pytest
exec -a x pytest > out
env PYTHONPATH=/tmp pytest
BASH_ENV=x pytest
/tmp/pytest
../.venv/bin/pytest
.venv/bin/python x.py
.venv/bin/rm x
node_modules/.bin/rm x
node_modules/.bin/../../evil
./pytest
python -m evil
python -m pytest -p evil
python -m http.server
python -m pip install x
python -mpytest -pevil
uv run --with evil pytest
uv run rm x
uv run uv run uv run pytest
npx -y pytest
npx rm x
npx --package=evil jest
npm test -- --config ./evil.js
npm test -- -u
npm test --script-shell ./evil
npm run test:update
npm run lint:fix
npm run build-and-deploy
npm run 'test; rm x'
npm config set x y
npm pkg set x=y
yarn
yarn add x
yarn test -- --updateSnapshot
pnpm i
make clean test
make test clean
make test CC=./evil
make -f x test
make -C .. test
make --eval=x test
make test -- -f x
cargo test --config x
cargo clippy --fix
cargo fmt
cargo build --target-dir ..
cargo test -- --logfile=out
cargo --config x test
cargo nextest archive
go test -exec x ./...
go test -o x ./...
go test -coverprofile=x ./...
go build -o x
go env -w A=b
go mod tidy
go list -toolexec=x ./...
ruff check --fix
ruff check --output-file=x
ruff format
black x
prettier --check --write x
prettier --check --plugin=./x .
eslint -f ./evil.js src
eslint --fix src
tsc --outDir src
tsc --init
node --test -r ./evil
node --check a b
node -c a
mypy --config-file=x
mypy --any-exprs-report x
gcc -fsyntax-only -fplugin=./x a.c
gcc -c a.c -o a.c
gcc -c -Wl,-plugin,x a.c
gcc a.c
clang-format -i x
cmake --build . --target install
cmake -B /tmp/x
cmake -P x
ctest -S x
gradle test -I x
./gradlew publish
mvn test exec:java
mvn -f ../x test
python manage.py migrate
php artisan migrate
rake db:drop
rspec -r ./x
json.tool a
js --ci
rust x
lints
site
"""

HELD_BYPASSES = [
    line.replace("\\n", "\n") if line.startswith("awk") else line
    for block in (_LISTS, _VALUES, _READS, _WORKS)
    for line in block.strip().split("\n")
]
