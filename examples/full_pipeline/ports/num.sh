# Prints a whole number ($1) with a comma before each three digits, and no newline.
num_group() {
    _num_rest=$1 _num_sign='' _num_groups=''
    case $_num_rest in
    -*) _num_sign=- _num_rest=${_num_rest#-} ;;
    esac
    while [ "${#_num_rest}" -gt 3 ]; do
        _num_head=${_num_rest%???}
        _num_groups=,${_num_rest#"$_num_head"}$_num_groups
        _num_rest=$_num_head
    done
    printf '%s' "$_num_sign$_num_rest$_num_groups"
}

# Prints the whole number in each line of the input with a comma before each three digits.
num() {
    while read -r _num_first _num_others || [ -n "$_num_first" ]; do
        num_group "$_num_first"
        printf '\n'
    done
}
