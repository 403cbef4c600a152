// Prepares a question for the theme's search, which adds a wildcard to each word. Words that no page is about are removed:
// otherwise, "delete a topic" finds every word that begins with "a". The other words lose their endings, so that each word
// finds all of its forms: "replaced" becomes "replac", which finds "replace", "replaces" and "replacing".
(() => {
  const QUERY = 2
  const EMPTY_WORDS = new Set(
    (
      "a about an and any are as at be by can could do does for from get has have how i if in into is it its make many me" +
      " mean means much my no of on one or our should so some that the their them there they this to us use was we what" +
      " when where which who why will with without work works would you your"
    ).split(" "),
  )
  const ENDING = /(?:ations?|ating|ated?|ates|ions?|ings?|ies|ied|ers?|ments?|ed|es|e|s|y)$/
  const STEM_LENGTH = 4

  const stem = (word) => {
    if (!/^[a-z]+$/.test(word)) return word
    const shorter = word.replace(ENDING, "")
    return shorter.length >= STEM_LENGTH ? shorter : word.replace(/s$/, "")
  }

  const prepared = (question) => {
    if (/["+*~^:]/.test(question)) return question
    const words = question.toLowerCase().replace(/[?!,]|\.(?=\s|$)/g, " ").split(/\s+/).filter(Boolean)
    const wanted = words.filter((word) => !EMPTY_WORDS.has(word))
    return (wanted.length ? wanted : words).map(stem).join(" ")
  }

  const post = Worker.prototype.postMessage
  Worker.prototype.postMessage = function (message, ...rest) {
    const isQuery = message && message.type === QUERY && typeof message.data === "string"
    return post.call(this, isQuery ? { ...message, data: prepared(message.data) } : message, ...rest)
  }
})()
