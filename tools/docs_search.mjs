// Asks the search of the built site the questions of docs_search_questions.txt, as a reader's browser does:
//
//     node tools/docs_search.mjs build/site tools/docs_search_questions.txt
//
// A line of the file has a question and the page that answers it. The page must be among the first three hits. The exit
// status is 1 if more than two questions are not answered so.

import { readFileSync, readdirSync } from "node:fs"
import vm from "node:vm"

const [site, questionsFile] = process.argv.slice(2)
const HITS = 3
const UNANSWERED_MAX = 2

const workers = `${site}/assets/javascripts/workers/`
const answers = []
let receive = null
const browser = {
  addEventListener: (_, handler) => (receive = handler),
  postMessage: (message) => answers.push(message),
  console,
  Intl,
  location: { href: "https://site/" },
}
browser.self = browser.globalThis = browser
browser.Worker = class {
  postMessage(message) {
    return receive({ data: message })
  }
}
vm.createContext(browser)
for (const script of readdirSync(workers).filter((name) => /^search.*\.js$/.test(name))) {
  vm.runInContext(readFileSync(workers + script, "utf8"), browser)
}
vm.runInContext(readFileSync(`${site}/javascripts/search-words.js`, "utf8"), browser)

const worker = new browser.Worker()
const index = JSON.parse(readFileSync(`${site}/search/search_index.json`, "utf8"))
await worker.postMessage({ type: 0, data: { ...index, options: { suggest: false } } })

let unanswered = 0
for (const line of readFileSync(questionsFile, "utf8").split("\n")) {
  if (!line || line.startsWith("#")) continue
  const [question, page] = line.split(" -> ")
  answers.length = 0
  await worker.postMessage({ type: 2, data: question })
  const hits = answers.at(-1).data.items.map(([first]) => first.location.replace(/#.*/, ""))
  const place = hits.indexOf(page) + 1
  const isAnswered = place > 0 && place <= HITS
  unanswered += isAnswered ? 0 : 1
  console.log(`${isAnswered ? "     " : "NO   "}${String(place || "-").padStart(3)}  ${question}`)
  if (!isAnswered) console.log(`          expected ${page}, found ${hits.slice(0, HITS).join(", ")}`)
}
console.log(`${unanswered} not answered by the first ${HITS} hits`)
process.exit(unanswered > UNANSWERED_MAX ? 1 : 0)
