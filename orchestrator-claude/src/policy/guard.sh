# Reads what a Bash call is to run, as JSON on standard input; exit code 2 blocks it.
call=$(cat)
says() { printf '%s' "$call" | grep -Eq -e "$1"; }
block() { printf '%s\n' "blocked by policy: $1" >&2; exit 2; }
# A word ends at a blank, a quote, or what JSON writes as \n, \t or \"; it begins after anything else
# that is no part of a word.
b='([[:space:]"'"'"']|\\[nrt"])'
a='(^|[^[:alnum:]_-]|\\[nrt])'
if says "${a}git$b([^;&|]*$b)?(push|send-pack)([^[:alnum:]_-]|\$)"; then
  block 'nothing is pushed; what you leave in the working directory is taken over for you'
fi
removals=$(printf '%s' "$call" | grep -Eo -e "${a}rm$b[^;&|]*")
if printf '%s' "$removals" | grep -Eq -e "$b(-[[:alpha:]]*[rR]|--recursive)" &&
  printf '%s' "$removals" | grep -Eq -e "$b(-[[:alpha:]]*f|--force)"; then
  block 'remove files by name, without -f'
fi
exit 0
