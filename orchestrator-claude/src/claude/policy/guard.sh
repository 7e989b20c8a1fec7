# Reads what a Bash call is to run, as JSON on standard input; exit code 2 blocks it.
call=$(cat)
# Only the command counts: a description may say "push" as it likes. What cannot be found is looked at
# as a whole. Backslashes and quotes within a word change nothing for a shell, so they are taken out
# (`g\it pu''sh`); what JSON writes as \n and \t parts words.
command=$(printf '%s' "$call" | sed -n 's/.*"command" *: *"\(\([^"\\]\|\\.\)*\)".*/\1/p')
[ -n "$command" ] || command=$call
command=$(printf '%s' "$command" | sed -e 's/\\\\//g' -e 's/\\t/ /g' -e 's/\\[nr]/ ; /g' -e 's/\\"/ " /g' -e "s/'/ ' /g")
joined=$(printf '%s' "$command" | sed -e "s/ [\"'] //g")
says() { printf '%s\n%s\n' "$command" "$joined" | grep -Eq -e "$1"; }
block() { printf '%s\n' "blocked by policy: $1" >&2; exit 2; }
# A word begins after anything that is no part of one.
a='(^|[^[:alnum:]_-])'
if says "${a}git[[:space:]]([^;&|]*[[:space:]])?(push|send-pack)([^[:alnum:]_-]|\$)"; then
  block 'nothing is pushed; what you leave in the working directory is taken over for you'
fi
removals=$(printf '%s\n%s\n' "$command" "$joined" | grep -Eo -e "${a}rm[[:space:]][^;&|]*")
if printf '%s' "$removals" | grep -Eq -e "[[:space:]](-[[:alpha:]]*[rR]|--recursive)" &&
  printf '%s' "$removals" | grep -Eq -e "[[:space:]](-[[:alpha:]]*f|--force)"; then
  block 'remove files by name, without -f'
fi
if says "${a}find[[:space:]][^;&|]*[[:space:]]-delete([[:space:]]|\$)"; then
  block 'remove files by name, without find -delete'
fi
exit 0
