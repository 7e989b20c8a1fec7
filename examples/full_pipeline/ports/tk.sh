# The toolkit: tk COMMAND ARGS... runs the filter of that name.
for _tk_module in chars trim num count uniq indent wrap csv columns table box stats; do
    . "./sh/$_tk_module.sh"
done

_tk_command=${1:-}
[ $# -eq 0 ] || shift
case $_tk_command in
chars | indent | csv | stats | wrap | table | box | trim | num | count | uniq | columns)
    "$_tk_command" "$@"
    ;;
*)
    printf 'tk: unknown command `%s`\n' "$_tk_command"
    exit 2
    ;;
esac
