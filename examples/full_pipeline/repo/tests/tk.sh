. tests/harness.sh
for command in 'trim' 'num' 'count' 'uniq' 'columns' 'chars 2' 'indent 3' 'csv 2' 'stats 1' 'wrap 12' 'table 6' 'box 12'; do
    input='12,ab cd
1234,ab cd
'
    name="tk $command"
    # The command and its argument are words.
    # shellcheck disable=SC2086
    wanted=$(printf '%s' "$input" | sh bin/tk $command; printf .)
    # shellcheck disable=SC2086
    got=$(printf '%s' "$input" | sh sh/tk.sh $command 2>&1; printf .)
    compare
done
sh sh/tk.sh nothing >/dev/null 2>&1
[ $? -eq 2 ] || { failed=1; printf 'FAIL: an unknown command ends with 2\n'; }
finish
