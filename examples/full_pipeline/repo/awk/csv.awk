# Prints one field of each line of CSV. Variables: n (which; the first is 1).
function field(line, n,    i, at, c, text, quoted) {
    at = 1
    for (i = 1; i <= length(line); i++) {
        c = substr(line, i, 1)
        if (quoted && c == "\"" && substr(line, i + 1, 1) == "\"") {
            if (at == n) text = text c
            i++
        } else if (c == "\"") quoted = !quoted
        else if (c == "," && !quoted) at++
        else if (at == n) text = text c
    }
    return text
}
{ print field($0, n) }
