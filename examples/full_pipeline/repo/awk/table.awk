# Shows lines of CSV as a table. Variables: width (of each column).
function padded(text, width) {
    while (length(text) < width) text = text " "
    return text
}
{
    row = ""; text = ""; quoted = 0
    for (i = 1; i <= length($0); i++) {
        c = substr($0, i, 1)
        if (quoted && c == "\"" && substr($0, i + 1, 1) == "\"") { text = text c; i++ }
        else if (c == "\"") quoted = !quoted
        else if (c == "," && !quoted) { row = row padded(text, width) " | "; text = "" }
        else text = text c
    }
    print row text
}
