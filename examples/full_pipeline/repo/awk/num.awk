# Puts a comma before each three digits of the whole number in each line. No variables.
{
    rest = $1
    sign = ""
    if (rest ~ /^-/) { sign = "-"; rest = substr(rest, 2) }
    groups = ""
    while (length(rest) > 3) {
        groups = "," substr(rest, length(rest) - 2) groups
        rest = substr(rest, 1, length(rest) - 3)
    }
    print sign rest groups
}
