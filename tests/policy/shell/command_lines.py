"""Command lines as data: ways around an allowed `ls` and `git status`, and honest everyday ones."""

from policy.shell.bypasses import MORE
from tiller_protocol.settings import Rule

_APPENDED = r"""
ls && X
ls || X
ls; X
ls;X
ls & X
ls | X
ls |& X
ls&&X
! X
(X)
{ X; }
ls $(X)
ls "$(X)"
ls `X`
ls "`X`"
ls <(X)
ls >(X)
ls --$(X)
if ls; then X; fi
if X; then ls; fi
while X; do ls; done
until X; do ls; done
for f in $(X); do ls; done
for f in a; do X; done
case a in a) X;; esac
case $(X) in a) ls;; esac
f() { X; }; f
function f { X; }; ls
ls() { X; }; ls
[ -n "$(X)" ] && ls
[[ -n $(X) ]] && ls
x=$(X) ls
x=$(X); ls
env X
env -i X
env A=b X
env -S "X"
sudo X
sudo -u root X
doas X
nohup X
nice X
nice -n 5 X
time X
timeout 5 X
timeout -k 1 5 X
stdbuf -o0 X
setsid X
ionice -c 3 X
command X
command -p X
builtin X
exec X
exec -a ls X
xargs X
ls | xargs X
ls | xargs -I{} X {}
ls | xargs -n1 X
echo x | xargs sh -c 'X'
sh -c 'X'
bash -c 'X'
bash -lc "X"
bash -euo pipefail -c 'X'
/bin/sh -c 'X'
sh -c 'sh -c "X"'
sh -c "ls; X"
echo 'X' | sh
bash <<< 'X'
eval X
eval "ls; X"
eval ls
source X
. X
trap 'X' EXIT
coproc X
find . -exec X {} \;
find . -execdir X {} +
find . -ok X \;
find . -name x -exec sh -c 'X' \;
git -c alias.status='!X' status
git -c core.fsmonitor='X' status
git -c core.pager=X -p log
git --config-env=core.fsmonitor=Y status
git --exec-path=/tmp status
git --git-dir=/tmp/evil status
git -C /tmp/evil status
git -C ../evil log
git rebase --exec X
git bisect run X
git submodule foreach X
git diff --ext-diff
git log --textconv -p
git grep -OX foo
git grep --open-files-in-pager=X foo
git grep --open=X foo
parallel X
watch X
script -c X
strace X
busybox X
awk 'BEGIN{system("X")}'
awk '{print | "X"}'
awk 'BEGIN{"X" | getline}'
awk '{print > "out"}'
sed -n '1e X' f
sed 's/a/X/e' f
perl -e 'system("X")'
python -c 'import os; os.system("X")'
node -e 'x'
ruby -e 'x'
vim -c '!X'
less +!X f
man -P X ls
rg --pre X foo
rg --pre=X foo
fd -x X
fd . --exec-batch X
tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec=X .
tar -tf a --to-command=X
sort --compress-program=X f
ssh host X
docker run x X
alias ls=X
alias ls='X'; ls
hash -p /tmp/evil ls; ls
enable -f ./evil.so ls
ls 2>&1 & X
ls # comment\nX
ls \\n&& X
"X"
ls\nX
ls\n\n  X
"""
_WRITING = r"""
ls > out
ls >> out
ls >| out
ls &> out
ls >& out
ls 2> out
ls 1>out 2>&1
> out
>out ls
ls <> out
ls > $x
ls > "$(pwd)/x"
cat <<EOF > out\nx\nEOF
cat <<EOF | sh\nX\nEOF
cat < /dev/tcp/127.0.0.1/80
cat > /dev/udp/127.0.0.1/53
exec 3<>/dev/tcp/h/80
echo x | tee out
find . -delete
find . -fprint out
find . -fprintf out %p
find . -fls out
find * -name x
sort -o out f
sort --output=out f
sort --outp=out f
sort -uo out f
uniq a b
git diff --output=out
git log --outpu=out
git branch new
git branch -D main
git tag v1
git stash
git config user.name x
git config core.fsmonitor x
git remote add x y
git checkout .
git reflog expire --all
sed -i s/a/b/ f
sed -n 'w out' f
sed 's/a/b/w out' f
sed --in-place s/a/b/ f
sed -n '1p' -i f
sed s/a/b/ *
tree -o out
date -s 12:00
xxd a b
file -C -m x
tar xf a.tar
dd of=out
cp a b
mv a b
rm a
ln -s a b
touch a
mkdir a
chmod +x a
truncate -s 0 a
printf -v PATH x
printf -v 'a[$(X)]' x
test -v 'a[$(X)]'
[ -v 'a[$(X)]' ]
[[ 'a[$(X)]' -eq 1 ]]
(( a[$(X)] ))
echo $(( a[$(X)] ))
x='a[$(X)]'; echo $((x))
let 'a[$(X)]=1'
read 'a[$(X)]'
unset 'a[$(X)]'
declare -i a='b[$(X)]'
export PATH=/tmp:$PATH; ls
PATH=/tmp ls
PATH=/tmp; ls
LD_PRELOAD=./evil.so ls
GIT_EXTERNAL_DIFF=X git status
GIT_SSH_COMMAND=X git status
BASH_ENV=./evil sh -c ls
IFS=x; ls
x=y z=w; PAGER=X git status
for PATH in /tmp; do ls; done
set -- a; $1
shopt -s expand_aliases
$x
$x foo
${x} foo
"$x" foo
ls${IFS}&&X
$(echo X)
`echo X`
l$x foo
{X,a}
{ls,-la}
./ls
/tmp/ls
~/ls
../ls x
l?
[l]s
\$'X'
$'\x72m' x
$"X"
echo ${x:=$(X)}
echo ${x@P}
echo "${x:-$(X)}"
echo ${a[$(X)]}
git $x
git status; git $x
git "$x" status
find . $x
find . {-delete,}
rg foo $x
rg foo *
ls 'unclosed
ls "unclosed
ls $(unclosed
ls \u00a0&& X
ls \u2028X
ls\rX
ls \x00X
lsof
lsx
LS
git statusx
git  stat
gitstatus
select x in a; do ls; done
time -o out ls
xargs -a f X
xargs -I ls ls
env -C /tmp ls
env --chdir=/tmp git status
sudo ls
sudo git status
sudo -i
su -c ls
cd /tmp/evil && git log
cd x; git diff
pushd x && git show
-2>&1
!'X' x
{X\nls; }
[ -n ||"$(X)" ]
case a in a) ls esac; X ;; esac
command - X
ls \ #; X
"""


def _lines(block: str) -> list[str]:
    """One a line; `X` is the forbidden command, escapes are for what a line can't hold."""
    found: list[str] = []
    for line in block.strip("\n").split("\n"):
        for escape, meant in (
            ("\\u00a0", "\u00a0"),
            ("\\u2028", "\u2028"),
            ("\\x00", "\0"),
            ("\\r", "\r"),
            ("\\t", "\t"),
            ("\\v", "\v"),
            ("\\f", "\f"),
            ("\\u200b", "\u200b"),
            ("\\u202e", "\u202e"),
            ("\\u3000", "\u3000"),
            ("\\n", "\n"),
        ):
            line = line.replace(escape, meant)
        found.append(line.replace("X", "rm -rf x") if line.count("X") else line)
    return found


BYPASSES = [text for block in (_APPENDED, _WRITING, *MORE) for text in _lines(block)]

_PROJECT = ("git *", "npm *", "pytest *", "python -m pytest *", "cargo *", "make *", "uv run *")
HONEST_RULES = [Rule("bash", pattern, "allow") for pattern in _PROJECT]

HONEST = _lines(
    r"""
ls
ls -la
ls -la src tests
ls *.py
ls ~/project
ls /usr/lib
ls a\ b "c d" 'e f'
pwd
cd src && ls
cd /work/project && ls -la
cat README.md
cat src/main.py | head -50
cat a.txt b.txt 2>/dev/null
cat < README.md
cat << 'EOF'\nsome $text\nEOF
head -n 20 README.md
tail -n +5 README.md
tail -100 build.log
wc -l src/*.py
grep -rn "def main" src
grep -n "a|b" file
grep -E '^(import|from) ' -r src --include='*.py'
grep -c TODO $(git ls-files)
rg -n "class .*Error" src
rg --files
rg -l foo -g '*.ts'
rg foo src | head -20
find . -name '*.py'
find . -type f -name "*.ts" -not -path "./node_modules/*"
find src -maxdepth 2 -type d
find . -name '*.py' | wc -l
find . -name '*.py' -print0 | xargs -0 grep -l foo
find . -name '*.py' -exec grep -l foo {} +
find . -name '*.py' -exec wc -l {} \;
find . \( -name a -o -name b \) -print
sort names.txt | uniq -c | sort -rn | head
sort -k2,2n -t, data.csv
cut -d, -f1 data.csv | sort -u
tr a-z A-Z < names.txt
sed -n '1,20p' src/main.py
sed -n '10p;20p' f
sed 's/foo/bar/g' f
sed -n '/start/,/end/p' f
awk '{print $1}' f
awk -F: '{print $1, $3}' /etc/passwd
awk 'NR==3' f
diff a b
diff -u a b | head
diff <(ls a) <(ls b)
cmp a b
stat README.md
file README.md
du -sh .
df -h
tree -L 2
which python
which -a node npm
type ls
command -v git
python --version
python3 --version && node --version
echo hello
echo "exit: $?"
echo $HOME
echo "$PATH" | tr : '\n'
echo done 1>&2
printf '%s\n' a b c
printf "%d files\n" 3
date
date +%Y-%m-%d
date -u +%s
whoami
uname -a
id
env
printenv PATH
ps aux | grep python
sleep 1
sleep 0.5 && echo ok
true
false || true
test -f README.md && echo yes
[ -f README.md ] && cat README.md
[ -d src ] || echo none
[[ -f a && -f b ]] && echo both
seq 1 10
basename src/main.py
dirname src/main.py
realpath .
readlink -f x
sha256sum f
md5sum f
base=src; ls $base
for f in a b c; do echo $f; done
for f in src/*.py; do wc -l "$f"; done
for f in *.py\ndo\n  echo "$f"\n  head -3 "$f"\ndone
if [ -f x ]; then cat x; else echo none; fi
while read -r line; do echo "$line"; done < f
git ls-files | while read f; do wc -l "$f"; done
git status
git status --short
git status -sb
git log --oneline -20
git log --format='%h %s' --since=yesterday
git log -p -- src/main.py
git diff
git diff HEAD~1 --stat
git diff main...HEAD -- src
git show HEAD
git show HEAD:src/main.py
git branch
git branch -a
git branch --show-current
git rev-parse HEAD
git remote -v
git stash list
git tag -l 'v*'
git blame -L 1,20 f
git ls-files | head
git grep -n foo
git config --get user.name
git --no-pager log -3
git -C sub status
git --no-pager diff --stat | tail -1
git add -A && git commit -m "message"
git add . && git commit -m 'fix: a; b && c | d'
git commit -m "$(cat <<'EOF'\nTitle\n\nBody with `code` and $dollar\nEOF\n)"
git push origin main
git checkout -b feature
npm test
npm run build
npm install && npm test
cd web && npm run lint
npm test 2>&1 | tail -40
npm run build > /dev/null 2>&1
CI=1 npm test
pytest
pytest -x tests/test_a.py::test_b
pytest -q 2>&1 | tail -5
python -m pytest -k "a and not b"
timeout 60 pytest -x
time pytest
make
make test
make -j4 build
cargo build --release
cargo test -- --nocapture
uv run pytest -x
uv run ruff check .
bash -c "npm test"
sh -c 'ls && pwd'
env CI=1 npm test
xargs -n1 echo < f
jq '.name' package.json
jq -r '.scripts | keys[]' package.json
cat package.json | jq .version
tar tzf x.tgz
ls -la; pwd; git status
ls  # a comment
# a comment first\nls
set -e; ls
set -euo pipefail\nls | head
! grep -q foo f
(cd src && ls)
{ ls; pwd; }
ls |& cat
ls &
wait
hexdump -C f | head
od -c f
strings f | head
nl -ba f
tac f
rev f
column -t f
paste a b
comm -12 a b
join a b
"""
)
